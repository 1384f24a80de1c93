//! The types that every package of SMC shares.
//!
//! Owns names and their checks ([`ids`]), network addresses ([`host_port`]), points in time as numbers
//! ([`time`]), the kinds of object that are read ([`kind`]), references to objects ([`object_ref`]), problems
//! found in them ([`problem`]), serial numbers of certificates ([`serial_number`]), what proxies share a
//! configuration by ([`proxy_class`]), the ports of a sidecar ([`ports`]), error chains as text ([`causes`]),
//! durations as people write them ([`duration`]), names of headers ([`header_name`]) and bounds on foreign
//! text ([`text`]). Each is a plain value; none does I/O.

pub mod causes;
pub mod duration;
pub mod header_name;
pub mod host_port;
pub mod ids;
pub mod kind;
pub mod object_ref;
pub mod ports;
pub mod problem;
pub mod proxy_class;
pub mod serial_number;
pub mod text;
pub mod time;
