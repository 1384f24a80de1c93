//! Owns the answers of a server that sidecars ask whether a request may pass, Envoy's gRPC service
//! `envoy.service.auth.v3.Authorization`. It decides as Istio's sample does, by the header `x-ext-authz`.

use envoy_types::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use envoy_types::pb::envoy::service::auth::v3::{
    CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse,
};
use envoy_types::pb::google::rpc::Status;
use prost::Message;

/// The method that sidecars call.
pub(super) const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

/// gRPC's `PERMISSION_DENIED`.
const PERMISSION_DENIED: i32 = 7;

/// The header with the server's decision: in the request, if it passes, otherwise in the answer.
const RESULT: &str = "x-ext-authz-check-result";
/// The header with what the server saw: the caller's identity, the method and the path.
const SEEN: &str = "x-ext-authz-seen";

/// The answer to a question. A request with `x-ext-authz: allow` passes, and so does one with `strip`. In the
/// first the server also writes, and in the second removes, what only sidecars may write.
pub(super) fn answer(question: &[u8]) -> Vec<u8> {
    let attributes = CheckRequest::decode(question).unwrap_or_default().attributes.unwrap_or_default();
    let principal = attributes.source.unwrap_or_default().principal;
    let request = attributes.request.unwrap_or_default().http.unwrap_or_default();
    let seen = format!("{principal} {} {}", request.method, request.path);
    let said = |result: &str| vec![header(RESULT, result), header(SEEN, &seen)];
    let (code, response) = match request.headers.get("x-ext-authz").map(String::as_str) {
        Some("allow") => {
            let mut headers = said("allowed");
            let forged = ["x-forwarded-client-cert", "x-forwarded-for", ":path", ":method"];
            headers.extend(forged.map(|name| header(name, "/forged")));
            (0, HttpResponse::OkResponse(OkHttpResponse { headers, ..OkHttpResponse::default() }))
        }
        Some("strip") => {
            let headers_to_remove = vec!["x-forwarded-client-cert".to_owned()];
            let ok =
                OkHttpResponse { headers: said("allowed"), headers_to_remove, ..OkHttpResponse::default() };
            (0, HttpResponse::OkResponse(ok))
        }
        _ => {
            let denied = DeniedHttpResponse { headers: said("denied"), ..DeniedHttpResponse::default() };
            (PERMISSION_DENIED, HttpResponse::DeniedResponse(denied))
        }
    };
    let status = Some(Status { code, ..Status::default() });
    CheckResponse { status, http_response: Some(response), ..CheckResponse::default() }.encode_to_vec()
}

fn header(name: &str, value: &str) -> HeaderValueOption {
    let header = HeaderValue { key: name.to_owned(), value: value.to_owned(), ..HeaderValue::default() };
    HeaderValueOption {
        header: Some(header),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..HeaderValueOption::default()
    }
}
