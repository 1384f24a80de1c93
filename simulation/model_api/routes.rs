//! What a request asks for.

use std::collections::BTreeMap;

use smc_types::kind::{Extent, Kind};

use super::history::{Key, OWN};
use super::resources::{self, Resource};
use super::server::Server;

/// What is at a path.
#[derive(Debug, Clone, Copy)]
pub(super) enum Route<'a> {
    /// The groups that are served.
    Groups,
    /// The resources of a group and version.
    Group(&'a str),
    /// Objects, in all namespaces or in one.
    Objects(&'static Resource, Option<Place>),
    /// A probe of the server's health.
    Health,
    Nothing,
}

/// A namespace of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// One that may exist.
    Known(u16),
    /// One that never existed.
    Unknown,
}

impl Place {
    /// Whether an object is in the place, if there is one.
    pub(super) fn has(place: Option<Self>, key: Key) -> bool {
        match place {
            None => true,
            Some(Self::Known(namespace)) => key.0 == namespace,
            Some(Self::Unknown) => false,
        }
    }

    /// Whether all objects of a kind that a source reads are in the place.
    pub(super) fn is_all_of(place: Option<Self>, kind: Kind) -> bool {
        place.is_none() || kind.spec().extent == Extent::Own && place == Some(Self::Known(OWN))
    }
}

/// What is at a path.
pub(super) fn route<'a>(server: &Server, path: &'a str) -> Route<'a> {
    match path {
        "/apis" | "/apis/" => return Route::Groups,
        "/readyz" | "/livez" | "/healthz" | "/version" => return Route::Health,
        _ => {}
    }
    let Some(rest) = path.strip_prefix("/apis/").or(path.strip_prefix("/api/")) else {
        return Route::Nothing;
    };
    for resource in resources::all() {
        let Some(rest) = rest.strip_prefix(resource.api_version) else { continue };
        if rest.is_empty() {
            return Route::Group(resource.api_version);
        }
        let Some(rest) = rest.strip_prefix('/') else { continue };
        let (place, plural) = match rest.strip_prefix("namespaces/").and_then(|rest| rest.split_once('/')) {
            Some((name, plural)) => {
                (Some(server.namespace_number(name).map_or(Place::Unknown, Place::Known)), plural)
            }
            None => (None, rest),
        };
        if plural == resource.plural {
            return Route::Objects(resource, place);
        }
    }
    Route::Nothing
}

/// The parameters of a query.
pub(super) fn parameters(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect()
}

/// A value without percent-encoding (RFC 3986).
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => bytes.push(u8::try_from(high * 16 + low).unwrap_or_default()),
                _ => bytes.push(b'?'),
            },
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
