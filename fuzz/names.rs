//! Names, addresses, durations and versions: what is read prints as what reads the same.

use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::time::Duration;

use smc_authority::pki::SerialNumber;
use smc_types::duration;
use smc_types::host_port::{HostPort, ReplicaAddress};
use smc_types::ids::{
    MeshNamespace, NamespacedName, ProxyName, ProxyUuid, ReplicaId, ServiceAccountId, ServiceId, TrustDomain,
    WorkloadId, check_label, check_subdomain,
};
use smc_xds::resource::Version;

/// Reads a text as everything.
pub(crate) fn run(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    reads_back::<HostPort>(text);
    reads_back::<ReplicaAddress>(text);
    reads_back::<NamespacedName>(text);
    reads_back::<ServiceAccountId>(text);
    reads_back::<ServiceId>(text);
    reads_back::<WorkloadId>(text);
    reads_back::<ReplicaId>(text);
    reads_back::<ProxyUuid>(text);
    reads_back::<ProxyName>(text);
    reads_back::<SerialNumber>(text);
    reads_back::<Version>(text);
    let _ = (check_label("name", text), check_subdomain("name", text), MeshNamespace::new(text));
    if let Ok(domain) = TrustDomain::new(text) {
        let account: ServiceAccountId = "shop/buyer".parse().unwrap();
        assert_eq!(domain.service_account(&domain.spiffe_id(&account)), Some(account));
    }
    if let Ok(domain) = TrustDomain::new("cluster.local")
        && let Some(account) = domain.service_account(text)
    {
        assert_eq!(domain.spiffe_id(&account), text);
    }
    durations(text);
}

fn reads_back<T>(text: &str)
where
    T: FromStr + Display + PartialEq + Debug,
    T::Err: Display,
{
    match text.parse::<T>() {
        Ok(value) => {
            let again = value.to_string().parse::<T>();
            assert!(again.is_ok_and(|again| again == value), "{text:?} reads as {value:?}, printed {value}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn durations(text: &str) {
    let (plain, days) = (duration::parse(text), duration::parse_with_days(text));
    match (plain, days) {
        (Ok(plain), days) => assert_eq!(days.ok(), Some(plain), "{text:?}"),
        (Err(_), Ok(with_days)) => {
            assert!(text.contains('d') && with_days < Duration::MAX, "{text:?} is {with_days:?}");
        }
        (Err(plain), Err(days)) => assert!(!plain.to_string().is_empty() && !days.to_string().is_empty()),
    }
}
