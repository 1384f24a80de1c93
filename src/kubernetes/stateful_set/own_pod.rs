//! The pod that a process is of, and another one in its place.
//!
//! Owns the looks at the API server. A StatefulSet makes a pod of the same name where a node is thought
//! dead, or where a person deletes one by force, and the process of the former pod may still run: two
//! processes of one number. With disks of their own the group tells them apart. With one disk, or copies of
//! one, it cannot: both would vote in the replica's name.

use std::time::Duration;

use thiserror::Error;
use tokio::time::sleep;

use super::{ApiError, OwnObjects};

/// The pause between two looks, each of which is one request.
const LOOK: Duration = Duration::from_secs(15);

/// The pause until the look that confirms what one has found.
const AGAIN: Duration = Duration::from_secs(3);

/// The pod of this process.
#[derive(Debug, Clone)]
pub struct OwnPod {
    /// The namespace that it is in.
    pub objects: OwnObjects,
    /// Its name.
    pub name: String,
    /// Its UID, if it is known.
    pub uid: Option<String>,
}

/// Another pod has the name. A retry does not help: the kubelet ends this process when it learns that its pod
/// is gone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the pod {name} is another one, with the UID {present}: this process is left of the one with the UID {mine}"
)]
pub struct PodReplaced {
    /// The name of both.
    pub name: String,
    /// The UID of this process's pod.
    pub mine: String,
    /// The UID of the present pod.
    pub present: String,
}

impl OwnPod {
    /// Returns when the API server has said twice that another pod has the name. Never returns otherwise:
    /// no pod, or no answer, says nothing of another process.
    pub async fn replaced(&self) -> PodReplaced {
        let Some(mine) = self.uid.clone() else { return std::future::pending().await };
        let present = another(&mine, async || self.present().await).await;
        PodReplaced { name: self.name.clone(), mine, present }
    }

    /// The UID of the pod that has the name now.
    pub(super) async fn present(&self) -> Result<Option<String>, ApiError> {
        self.objects.pod_uid(&self.name).await
    }
}

async fn another<E>(mine: &str, look: impl AsyncFn() -> Result<Option<String>, E>) -> String {
    let mut before = None;
    loop {
        let other = look().await.ok().flatten().filter(|present| present != mine);
        match other {
            Some(present) if before.as_ref() == Some(&present) => return present,
            _ => before = other,
        }
        sleep(if before.is_some() { AGAIN } else { LOOK }).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::timeout;

    use super::*;

    /// What comes of these looks, and of the last of them for ever.
    async fn found(looks: &[Result<Option<&str>, ()>]) -> Option<String> {
        let left = RefCell::new(looks.iter().rev().copied().collect::<Vec<_>>());
        let look = async || {
            let mut left = left.borrow_mut();
            let look = if left.len() > 1 { left.pop() } else { left.first().copied() };
            look.unwrap().map(|uid| uid.map(str::to_owned))
        };
        timeout(Duration::from_hours(1), another("mine", look)).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_is_of_a_former_pod_if_another_has_its_name_at_two_looks() {
        for (sentence, looks, replaced) in [
            ("its pod is there", &[Ok(Some("mine"))][..], None),
            ("another one is", &[Ok(Some("other"))], Some("other")),
            ("another one comes", &[Ok(Some("mine")), Ok(None), Ok(Some("other"))], Some("other")),
            ("none is, as while it is deleted", &[Ok(None)], None),
            ("the API server is away", &[Err(())], None),
            ("one look alone", &[Ok(Some("other")), Ok(Some("mine"))], None),
            ("one look, and then no answer", &[Ok(Some("other")), Err(())], None),
            ("two others, one after the other", &[Ok(Some("a")), Ok(Some("b"))], Some("b")),
        ] {
            assert_eq!(found(looks).await.as_deref(), replaced, "{sentence}");
        }
    }
}
