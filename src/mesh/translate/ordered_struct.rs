//! Envoy's messages with maps, encoded in one order.
//!
//! Owns that equal content is equal bytes: the generated messages hold hash maps, whose order differs from
//! one process to the next. An equivalent message with an ordered map is encoded instead.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType};
use prost::{DecodeError, Message, Oneof};

/// `google.protobuf.Struct` with an ordered map.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OrderedStruct {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) fields: BTreeMap<String, OrderedValue>,
}

/// `google.protobuf.Value` with such structures.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OrderedValue {
    #[prost(oneof = "OrderedKind", tags = "1, 2, 3, 4, 5, 6")]
    pub(super) kind: Option<OrderedKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum OrderedKind {
    #[prost(int32, tag = "1")]
    Null(i32),
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
    #[prost(message, tag = "5")]
    Object(OrderedStruct),
    #[prost(message, tag = "6")]
    List(OrderedList),
}

/// `google.protobuf.ListValue` with such values.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OrderedList {
    #[prost(message, repeated, tag = "1")]
    pub(super) values: Vec<OrderedValue>,
}

impl OrderedStruct {
    /// Texts by their names.
    pub(super) fn of_texts<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let value = |text: &str| OrderedValue { kind: Some(OrderedKind::Text(text.to_owned())) };
        Self { fields: texts.into_iter().map(|(name, text)| (name.to_owned(), value(text))).collect() }
    }
}

/// `Metadata` with ordered maps.
#[derive(Clone, PartialEq, Message)]
struct OrderedMetadata {
    #[prost(btree_map = "string, message", tag = "1")]
    filter_metadata: BTreeMap<String, OrderedStruct>,
}

/// The field `metadata` of a `Cluster`.
#[derive(Clone, PartialEq, Message)]
struct OfCluster {
    #[prost(message, optional, tag = "25")]
    metadata: Option<OrderedMetadata>,
}

/// A cluster, with metadata or without.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct DescribedCluster {
    cluster: Cluster,
    metadata: OfCluster,
}

impl DescribedCluster {
    /// A cluster without metadata.
    pub(super) fn plain(cluster: Cluster) -> Self {
        Self { cluster, metadata: OfCluster::default() }
    }

    /// A cluster with these texts as its metadata in a namespace of filters.
    pub(super) fn new<'a>(
        cluster: Cluster,
        namespace: &str,
        texts: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let texts = OrderedStruct::of_texts(texts);
        let filter_metadata = BTreeMap::from([(namespace.to_owned(), texts)]);
        let metadata = OfCluster { metadata: Some(OrderedMetadata { filter_metadata }) };
        Self { cluster, metadata }
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.cluster.name
    }
}

/// The bytes of two messages, one after the other, are those of one with the fields of both.
impl Message for DescribedCluster {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        self.cluster.encode_raw(buf);
        self.metadata.encode_raw(buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        self.cluster.merge_field(tag, wire_type, buf, context)
    }

    fn encoded_len(&self) -> usize {
        self.cluster.encoded_len() + self.metadata.encoded_len()
    }

    fn clear(&mut self) {
        self.cluster.clear();
        self.metadata.clear();
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::google::protobuf::value::Kind;

    use super::*;

    #[test]
    fn a_cluster_with_metadata_reads_back_as_envoys_own() {
        let cluster = Cluster { name: "a".to_owned(), ..Cluster::default() };
        let described = DescribedCluster::new(cluster.clone(), "n", [("b", "c"), ("a", "d")]);
        let bytes = described.encode_to_vec();
        assert_eq!(bytes.len(), described.encoded_len());
        let read = Cluster::decode(&*bytes).unwrap();
        let fields = &read.metadata.as_ref().unwrap().filter_metadata["n"].fields;
        let texts = ["a", "b"].map(|name| fields[name].kind.clone());
        assert_eq!(texts, ["d", "c"].map(|text| Some(Kind::StringValue(text.to_owned()))));
        assert_eq!(Cluster { metadata: None, ..read }, cluster);
        assert_eq!(DescribedCluster::plain(cluster.clone()).encode_to_vec(), cluster.encode_to_vec());
    }
}
