//! A stand-in for an API server, over HTTP, for controllers that run with `--kubernetes`.
//!
//! Owns what it serves: lists and watches of a mesh that does not change, the configuration of the webhooks,
//! and whatever Secret a controller makes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use smc_types::kind::Kind;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::{StreamExt, iter, pending};

type Body = BoxBody<Bytes, Infallible>;

/// The API server, until it is dropped.
pub(crate) struct ApiServer {
    /// The kubeconfig that leads to it.
    pub(crate) kubeconfig: PathBuf,
    /// The roots of the webhooks' certificates, as the leader writes them.
    trusted: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct State {
    objects: Vec<Value>,
    trusted: watch::Sender<Option<String>>,
}

impl ApiServer {
    /// Starts one with the namespace `shop` of the mesh, and pods `pod-0` and so on with a sidecar. Its
    /// kubeconfig is in `directory`.
    pub(crate) async fn start(pods: u64, directory: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (told, trusted) = watch::channel(None);
        let state = Arc::new(State { objects: shop(pods), trusted: told });
        let task = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let state = Arc::clone(&state);
                tokio::spawn(async move {
                    let answer = service_fn(move |request| answer(Arc::clone(&state), request));
                    let http = hyper::server::conn::http1::Builder::new();
                    // How the connection ends says nothing.
                    let _ = http.serve_connection(TokioIo::new(socket), answer).await;
                });
            }
        });
        let kubeconfig = directory.join("kubeconfig");
        std::fs::write(&kubeconfig, config(address)).unwrap();
        Self { kubeconfig, trusted, task }
    }

    /// The roots that the webhooks' certificates are verified against, as PEM, once the leader has written
    /// them.
    pub(crate) async fn trusted(&self) -> Vec<u8> {
        let mut trusted = self.trusted.clone();
        let written = trusted.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        data_encoding::BASE64.decode(written.as_bytes()).unwrap()
    }
}

fn config(address: SocketAddr) -> String {
    json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}]})
    .to_string()
}

fn shop(pods: u64) -> Vec<Value> {
    let metadata = |name: &str, number: u64| {
        json!({"name": name, "namespace": "shop", "resourceVersion": "1",
            "uid": format!("00000000-0000-4000-9000-{number:012}")})
    };
    let mut namespace = metadata("shop", 1);
    namespace["labels"] = json!({"openservicemesh.io/monitored-by": "smc"});
    namespace["namespace"].take();
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("buyer", 2)}),
    ];
    for pod in 0..pods {
        let mut metadata = metadata(&format!("pod-{pod}"), 10 + pod);
        metadata["labels"] = json!({"osm-proxy-uuid": format!("00000000-0000-4000-8000-{pod:012}")});
        let spec = json!({"serviceAccountName": "buyer", "containers": [{"name": "app", "image": "app"}]});
        objects.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}));
    }
    objects
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    // A request that broke off is one without a body.
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let query = head.uri.query().unwrap_or_default();
    let hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/smc-injector-smc";
    let (status, body) = match (&head.method, head.uri.path()) {
        (method, path) if path == hooks => {
            if method == Method::PATCH {
                let bundle = body["webhooks"][0]["clientConfig"]["caBundle"].as_str();
                state.trusted.send_replace(bundle.map(str::to_owned));
            }
            let service = json!({"name": "smc-webhook", "namespace": "smc-system", "path": "/mutate"});
            let hook = json!({"name": "injector.smc.dev", "admissionReviewVersions": ["v1"],
                "sideEffects": "None", "clientConfig": {"service": service}});
            (200, whole(&json!({"metadata": {"name": "smc-injector-smc"}, "webhooks": [hook]})))
        }
        (&Method::POST, path) if path.ends_with("/secrets") => (201, whole(&body)),
        (&Method::GET, "/readyz") => (200, whole(&json!("ok"))),
        (&Method::GET, "/apis") => (200, whole(&groups())),
        (&Method::GET, path) => match read(&state, path, query) {
            Some(body) => (200, body),
            None => (404, whole(&not_found())),
        },
        _ => (404, whole(&not_found())),
    };
    let answer = Response::builder().status(status).header("content-type", "application/json").body(body);
    Ok(answer.unwrap())
}

fn not_found() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "not here"})
}

fn whole(json: &Value) -> Body {
    Full::new(Bytes::from(json.to_string())).boxed()
}

/// All kinds that are read, in all versions: `(apiVersion, kind)`.
fn kinds() -> impl Iterator<Item = (String, Kind)> {
    Kind::ALL.iter().flat_map(|kind| kind.spec().api_versions().map(|version| (version, *kind)))
}

fn groups() -> Value {
    let versions = kinds().filter(|(version, _)| version.contains('/'));
    let group = |(version, kind): (String, Kind)| json!({"name": kind.spec().group, "versions": [{"groupVersion": version}]});
    json!({"groups": versions.map(group).collect::<Vec<_>>()})
}

/// The answer to a question for the resources of a version, or for objects.
fn read(state: &State, path: &str, query: &str) -> Option<Body> {
    let rest = path.strip_prefix("/apis/").or(path.strip_prefix("/api/"))?;
    let of_version = kinds().filter(|(version, _)| rest == version).map(|(_, kind)| kind.spec());
    let resources: Vec<_> = of_version
        .map(|spec| json!({"name": spec.plural, "kind": spec.name, "verbs": ["get", "list", "watch"]}))
        .collect();
    if !resources.is_empty() {
        return Some(whole(&json!({"resources": resources})));
    }
    let (version, kind) = kinds().find(|(version, kind)| {
        rest.strip_prefix(version.as_str())
            .is_some_and(|rest| rest.ends_with(&format!("/{}", kind.spec().plural)))
    })?;
    let items = state.objects.iter().filter(|object| object["kind"] == kind.spec().name);
    if !query.contains("watch=true") {
        let items: Vec<_> = items.collect();
        return Some(whole(&json!({"apiVersion": version, "kind": format!("{}List", kind.spec().name),
            "metadata": {"resourceVersion": "1"}, "items": items})));
    }
    let mut lines: Vec<Value> = Vec::new();
    if query.contains("sendInitialEvents=true") {
        lines.extend(items.map(|object| json!({"type": "ADDED", "object": object})));
        let metadata = json!({"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}});
        let end = json!({"apiVersion": version, "kind": kind.spec().name, "metadata": metadata});
        lines.push(json!({"type": "BOOKMARK", "object": end}));
    }
    let lines: Vec<_> = lines.iter().map(|line| Ok(Frame::data(Bytes::from(format!("{line}\n"))))).collect();
    Some(BodyExt::boxed(StreamBody::new(iter(lines).chain(pending()))))
}
