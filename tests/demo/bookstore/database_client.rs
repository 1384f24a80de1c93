//! The warehouse's side of the database protocol: one connection per command. The client reads the
//! greeting before it writes, as in every protocol in which the server speaks first.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader};

use super::database::read_line;
use super::database_protocol::{Command, GREETING, Reply};
use super::http_client::{classify_io, connect};
use super::record::CallError;

/// Address of a database: `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseTarget {
    host: String,
    port: u16,
}

/// The text is not a `HOST:PORT`.
#[derive(Debug, thiserror::Error)]
#[error("a database is written HOST:PORT, unlike {0:?}")]
pub struct DatabaseTargetError(String);

impl FromStr for DatabaseTarget {
    type Err = DatabaseTargetError;

    fn from_str(text: &str) -> Result<Self, DatabaseTargetError> {
        let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        match parts {
            Some((host, port)) if !host.is_empty() && !host.contains('/') => {
                Ok(Self { host: host.to_owned(), port })
            }
            _ => Err(DatabaseTargetError(text.to_owned())),
        }
    }
}

impl fmt::Display for DatabaseTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Sends one command and returns the reply within `limit`.
pub(super) async fn command(
    target: &DatabaseTarget,
    command: &Command,
    limit: Duration,
) -> Result<Reply, CallError> {
    tokio::time::timeout(limit, exchange(target, command)).await.unwrap_or(Err(CallError::TimedOut))
}

async fn exchange(target: &DatabaseTarget, command: &Command) -> Result<Reply, CallError> {
    let mut stream = connect(&target.host, target.port).await?;
    let (read, mut write) = stream.split();
    let mut read = BufReader::new(read);
    let mut next_line = async || -> Result<String, CallError> {
        let line = read_line(&mut read).await.map_err(|error| classify_io(&error))?;
        line.ok_or(CallError::ConnectionClosed)
    };

    if next_line().await? != GREETING {
        return Err(CallError::Protocol);
    }
    write.write_all(format!("{command}\r\n").as_bytes()).await.map_err(|error| classify_io(&error))?;
    let reply = Reply::parse(&next_line().await?).map_err(|_| CallError::Protocol)?;
    // The reply has arrived; a failed QUIT changes nothing.
    let _ = write.write_all(format!("{}\r\n", Command::Quit).as_bytes()).await;
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_a_host_and_a_port() {
        for (text, valid) in [
            ("database.bookdatabase:3306", true),
            ("[::1]:3306", true),
            ("database", false),
            (":3306", false),
            ("database:port", false),
            ("tcp://database:3306", false),
        ] {
            assert_eq!(text.parse::<DatabaseTarget>().is_ok(), valid, "{text}");
        }
    }
}
