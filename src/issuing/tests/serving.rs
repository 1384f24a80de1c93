//! The controller's own certificate.

use tempfile::TempDir;

use super::*;
use crate::tls::ServerTls;

#[tokio::test]
async fn the_controllers_certificate_is_renewed_also_after_a_clock_ran_ahead() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let issuer: Arc<dyn Issuer> = Arc::<BuiltinCa>::clone(&test.ca);
    let server = ServerTls::start(issuer, test.env.clone(), names()).await.unwrap();
    for (now, due) in [
        (START.plus(HOUR), false),
        (START.plus(40 * HOUR), true),
        (START.plus(30 * DAY), true),
        // Valid, but a month from now.
        (START.plus(41 * HOUR), true),
        (START.plus(42 * HOUR), false),
    ] {
        test.clock.set(now);
        assert_eq!(server.renew_if_due().await.unwrap(), due, "{now:?}");
        assert!(server.validity().contains(now));
    }
}
