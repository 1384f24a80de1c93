//! Rules over the ledger: which proxy is admitted, which certificate is due for renewal, which
//! proxy certificate is orphaned, which identity is unused, which gateway needs a certificate, which
//! step of a CA rotation is next, whether the replicas' clocks agree, which warnings an operator gets.
//!
//! Owns these decisions as pure functions of the ledger, the time and the replicas' reports. The
//! caller carries them out. Each rule has one file.

mod absences;
mod admission;
mod ca_rotation;
mod clock_stability;
mod declared_roots;
mod gateways;
mod group_time;
mod orphans;
mod renewal;
mod unused_identities;
mod warnings;

pub use admission::{
    Admission, Identified, KnownWorkload, PeerCertificate, Refusal, admit, identify, service_identity,
};
pub use ca_rotation::{CaPlan, CaStep, RotationInputs, plan_ca_rotation, revive_issuing};
pub use clock_stability::ClockStability;
pub use declared_roots::{Contradiction, DeclaredRoots, RootObstacle, RootRole, contradiction};
pub use gateways::{GatewayPlan, IngressGateway, WantedGateway, plan_gateways};
pub use group_time::{Clocks, GroupTime, MAX_CLOCK_OFFSET, compare as compare_clocks};
pub use orphans::{
    CertificateHolder, Look, Orphans, TIME_TO_APPEAR, UNCLAIMED_KEPT, orphaned_certificates,
    unclaimed_certificates,
};
pub use renewal::{RenewalPlan, WantedCertificates, earliest_service_end, plan_renewal};
pub use unused_identities::UnusedIdentities;
pub use warnings::{CaWarning, ca_warnings};
