//! The TLS of both ends, and that a change of it which reaches one end before the other cuts nothing.

use envoy_types::pb::envoy::config::core::v3::TransportSocket;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, TlsParameters, UpstreamTlsContext,
};
use serde_json::{Value, json};
use smc_mesh::translate::Compiler;

use super::*;

/// Envoy's own curves and suites of clients and servers (`common.proto` of its TLS transport socket): those
/// of every build, and thus fewer than most have.
const OWN_CURVES: [&str; 1] = ["P-256"];
const OWN_SUITES: [&str; 2] = ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"];

fn chosen(fields: &Value) -> Compiler {
    shop([a_may_call("shop/b1"), a_may_call("shop/db"), sidecar(fields)])
}

fn context<T: Message + Name + Default>(socket: Option<&TransportSocket>) -> T {
    let Some(ConfigType::TypedConfig(any)) = socket.and_then(|socket| socket.config_type.as_ref()) else {
        panic!("{socket:?}")
    };
    assert_eq!(any.type_url, T::type_url());
    T::decode(&*any.value).unwrap()
}

fn parameters(context: Option<CommonTlsContext>) -> TlsParameters {
    context.unwrap().tls_params.unwrap()
}

/// What a client of b offers.
fn offered(compiler: &Compiler) -> TlsParameters {
    let cluster: Cluster = get(&view(compiler, "shop/a").unwrap(), ResourceType::Cluster, "shop/b|80");
    parameters(context::<UpstreamTlsContext>(cluster.transport_socket.as_ref()).common_tls_context)
}

/// What the ports of b1 and of db accept.
fn accepted(compiler: &Compiler) -> Vec<TlsParameters> {
    let of = |pod: &str| {
        let listener: Listener =
            get(&view(compiler, pod).unwrap(), ResourceType::Listener, names::INBOUND_LISTENER);
        let sockets = listener.filter_chains.into_iter().map(|chain| {
            parameters(context::<DownstreamTlsContext>(chain.transport_socket.as_ref()).common_tls_context)
        });
        sockets.collect::<Vec<_>>()
    };
    [of("shop/b1"), of("shop/db")].concat()
}

fn versions(parameters: &TlsParameters) -> std::ops::RangeInclusive<i32> {
    parameters.tls_minimum_protocol_version..=parameters.tls_maximum_protocol_version
}

/// The names of a list; those of Envoy's own if it is empty.
fn names_of<'a>(list: &'a [String], own: &[&'a str]) -> BTreeSet<&'a str> {
    let names = list.iter().flat_map(|entry| entry.trim_matches(['[', ']']).split('|'));
    if list.is_empty() { own.iter().copied().collect() } else { names.collect() }
}

/// A MeshConfig reaches sidecars one after the other, and of two that follow each other, either end may have
/// either.
#[test]
fn any_two_choices_have_a_version_a_suite_and_a_curve_in_common() {
    let versions_of = [
        json!({}),
        json!({"tlsMinProtocolVersion": "TLSv1_3"}),
        json!({"tlsMaxProtocolVersion": "TLSv1_2"}),
        json!({"tlsMinProtocolVersion": "bogus"}),
    ];
    let suites = [
        json!([]),
        json!(["ECDHE-ECDSA-AES256-GCM-SHA384"]),
        json!(["ECDHE-ECDSA-CHACHA20-POLY1305"]),
        json!(["AES128-SHA"]),
    ];
    let curves = [json!([]), json!(["P-384"]), json!(["X25519"]), json!(["P-521", "P-256"])];
    let mut choices = Vec::new();
    for (versions, suites) in versions_of.iter().flat_map(|v| suites.iter().map(move |s| (v, s))) {
        for curves in &curves {
            let mut fields = versions.clone();
            fields["cipherSuites"] = suites.clone();
            fields["ecdhCurves"] = curves.clone();
            let compiler = chosen(&fields);
            choices.push((fields, offered(&compiler), accepted(&compiler)));
        }
    }
    for ((by_client, offered, _), (by_server, _, accepted)) in
        choices.iter().flat_map(|client| choices.iter().map(move |server| (client, server)))
    {
        let case = format!("{by_client} calls {by_server}");
        assert!(!accepted.is_empty());
        for accepted in accepted {
            let (offers, accepts) = (versions(offered), versions(accepted));
            let highest = *offers.end().min(accepts.end());
            assert!(offers.contains(&highest) && accepts.contains(&highest), "{case}");
            if highest == 3 {
                let offers = names_of(&offered.cipher_suites, &OWN_SUITES);
                assert!(!offers.is_disjoint(&names_of(&accepted.cipher_suites, &OWN_SUITES)), "{case}");
            }
            let offers = names_of(&offered.ecdh_curves, &OWN_CURVES);
            assert!(!offers.is_disjoint(&names_of(&accepted.ecdh_curves, &OWN_CURVES)), "{case}");
        }
    }
}

#[test]
fn what_presets_choose_changes_no_byte() {
    let bytes = |fields: &Value| {
        let compiler = chosen(fields);
        (offered(&compiler), accepted(&compiler))
    };
    let preset = json!({
        "tlsMinProtocolVersion": "TLSv1_2", "tlsMaxProtocolVersion": "TLSv1_3", "cipherSuites": [], "ecdhCurves": [],
    });
    let without = bytes(&json!({}));
    assert_eq!(bytes(&preset), without);
    let (offered, accepted) = bytes(&json!({"tlsMinProtocolVersion": "TLSv1_3"}));
    assert_eq!(offered, without.0, "versions are those of the end that is called");
    assert_ne!(accepted, without.1);
}
