//! What of outside the mesh an identity may reach.
//!
//! Owns which Egresses hold for an identity, and the share of what its namespace may take that they have.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Catalog;
use super::problems::check::Check;
use crate::policy::{EgressSurvey, GroupSizes, MAX_EGRESS, MAX_NAMESPACE, egress_ports};
use smc_api::osm::Egress;
use smc_model::egress::EgressPorts;
use smc_types::ids::{NamespacedName, ServiceAccountId};

impl Catalog {
    /// What of outside the mesh an identity may reach by name or network. Nothing, where it may reach all.
    pub fn egress(&self, account: &ServiceAccountId) -> EgressPorts {
        let config = self.mesh_config();
        if config.egress || config.ignores_egress || !self.index.egress_of.contains_key(account) {
            return EgressPorts::new();
        }
        let survey = self.index.egress_surveys.get(account);
        let has_room = |egress: &&Egress| survey.is_none_or(|survey| survey.has_room_for(&egress.id));
        egress_ports(self, self.egress_objects(account).take_while(has_room))
    }

    /// The Egresses of an identity for which there is no room, sorted by name. They have no effect.
    pub fn egress_left_out(&self, account: &ServiceAccountId) -> impl Iterator<Item = &NamespacedName> {
        let survey = self.index.egress_surveys.get(account);
        let is_left_out = move |id: &&NamespacedName| survey.is_some_and(|survey| !survey.has_room_for(id));
        self.index.egress_of.get(account).into_iter().flatten().filter(is_left_out)
    }

    /// The Egresses of an identity, sorted by name.
    fn egress_objects(&self, account: &ServiceAccountId) -> impl Iterator<Item = &Egress> {
        let names = self.index.egress_of.get(account).into_iter().flatten();
        names.filter_map(|id| self.egresses.get(id)).map(AsRef::as_ref)
    }

    /// The most that the Egresses of one identity of this namespace may take. The number of identities is
    /// rounded up to a power of two, so that the share of all others seldom changes with one.
    fn share_of_egress(&self, namespace: &str) -> u64 {
        let sources = self.index.egress_sources_in.get(namespace).map_or(1, BTreeSet::len);
        let sources = u64::try_from(sources.next_power_of_two()).unwrap_or(u64::MAX);
        MAX_EGRESS.min(MAX_NAMESPACE / sources)
    }

    pub(super) fn set_egress(&mut self, id: &NamespacedName, new: Option<Arc<Egress>>) {
        if self.egresses.get(id) == new.as_ref() {
            return;
        }
        self.found.due(Check::Egress(id.clone()));
        let share = self.share_of_egress(id.namespace());
        if let Some(old) = self.egresses.remove(id) {
            self.turn_egress_of(&old.sources);
            self.index.file_egress(&old, false);
        }
        if let Some(new) = new {
            self.turn_egress_of(&new.sources);
            self.index.file_egress(&new, true);
            self.egresses.insert(id.clone(), new);
        }
        if self.share_of_egress(id.namespace()) != share {
            let sources = self.index.egress_sources_in.get(id.namespace()).cloned();
            self.turn_egress_of(&sources.unwrap_or_default());
        }
    }

    /// Notes that a group may allow other requests out of the mesh.
    pub(super) fn turn_egress_using(&mut self, group: &NamespacedName) {
        let using = self.index.egress_using.get(group).cloned().unwrap_or_default();
        for id in using {
            if let Some(egress) = self.egresses.get(&id).map(Arc::clone) {
                self.turn_egress_of(&egress.sources);
            }
            self.found.due(Check::Egress(id));
        }
    }

    fn turn_egress_of(&mut self, sources: &BTreeSet<ServiceAccountId>) {
        self.pending.affected.accounts.extend(sources.iter().cloned());
        self.pending.egress.extend(sources.iter().cloned());
    }

    /// Brings up to date how far the Egresses of these identities have effect.
    pub(super) fn survey_egress(&mut self, accounts: BTreeSet<ServiceAccountId>) {
        let mut groups = GroupSizes::new();
        let survey = |account: ServiceAccountId| {
            let share = self.share_of_egress(account.namespace());
            let survey = EgressSurvey::of(self, self.egress_objects(&account), share, &mut groups);
            (account, survey)
        };
        let surveys: Vec<_> = accounts.into_iter().map(survey).collect();
        for (account, survey) in surveys {
            let known = self.index.egress_surveys.get(&account).cloned().unwrap_or_default();
            if survey == known {
                continue;
            }
            // What has no effect now, or had none, says so, or ceases to.
            let objects = self.index.egress_of.get(&account).into_iter().flatten();
            self.found.all_of(objects.cloned().map(Check::Egress));
            if survey == EgressSurvey::default() {
                self.index.egress_surveys.remove(&account);
            } else {
                self.index.egress_surveys.insert(account, survey);
            }
        }
    }
}

#[cfg(test)]
mod tests;
