//! Breaks the rules for the TLS of both ends.

use tls::tls_parameters::TlsProtocol;

use super::*;

type Change = fn(&mut tls::TlsParameters);

const ONE_VERSION: Change = |parameters| parameters.tls_minimum_protocol_version = TlsProtocol::TlSv13.into();
const OLD_VERSION: Change = |parameters| parameters.tls_minimum_protocol_version = TlsProtocol::TlSv11.into();
const ENVOYS_VERSIONS: Change = |parameters| {
    parameters.tls_minimum_protocol_version = TlsProtocol::TlsAuto.into();
    parameters.tls_maximum_protocol_version = TlsProtocol::TlsAuto.into();
};
const NO_VERSION: Change = |parameters| {
    parameters.tls_minimum_protocol_version = TlsProtocol::TlSv13.into();
    parameters.tls_maximum_protocol_version = TlsProtocol::TlSv12.into();
};
const A_SUITE: Change =
    |parameters| parameters.cipher_suites = vec!["ECDHE-ECDSA-AES128-GCM-SHA256".to_owned()];
const A_RARE_SUITE: Change =
    |parameters| parameters.cipher_suites = vec!["ECDHE-ECDSA-CHACHA20-POLY1305".to_owned()];
const OTHER_CURVES: Change = |parameters| parameters.ecdh_curves = vec!["P-384".to_owned()];
const CURVES: Change = |parameters| parameters.ecdh_curves = vec!["P-384".to_owned(), "P-256".to_owned()];

#[test]
fn any_two_sidecars_have_versions_suites_and_curves_in_common() {
    let called = |chain: &'static str, change: Change| {
        inbound(
            |chain| {
                with_tls(chain.transport_socket.as_mut(), |context: &mut tls::DownstreamTlsContext| {
                    change(context.common_tls_context.as_mut().unwrap().tls_params.as_mut().unwrap());
                });
            },
            chain,
        )
    };
    let calls = |change: Change| {
        cluster("shop/a|80", |cluster| {
            with_tls(cluster.transport_socket.as_mut(), |context: &mut tls::UpstreamTlsContext| {
                change(context.common_tls_context.as_mut().unwrap().tls_params.as_mut().unwrap());
            });
        })
    };
    for (case, change, refused) in [
        ("versions that Envoy chooses", ENVOYS_VERSIONS, true),
        ("a version that must not be spoken", OLD_VERSION, true),
        ("no version", NO_VERSION, true),
        ("a suite that few offer", A_RARE_SUITE, true),
        ("other curves", OTHER_CURVES, true),
        ("one version", ONE_VERSION, false),
        ("a suite", A_SUITE, false),
        ("curves", CURVES, false),
    ] {
        for chain in ["inbound_80_http", "ingress_80_https"] {
            let found = called(chain, change);
            assert_eq!(!found.is_empty(), refused, "{chain}, {case}: {found}");
        }
        let only_called = case == "one version" || case == "a suite";
        let found = calls(change);
        assert_eq!(!found.is_empty(), refused || only_called, "{case}: {found}");
    }
}
