//! The packets of a simulation.
//!
//! Owns what of a packet is noted: where it comes from, where it goes, and which one it is. Not what is in it, nor how
//! long it is: TLS makes both differ from run to run.

use turmoil::{Protocol, Segment, Sim};

use crate::trace::Trace;

/// Notes every packet that is under way after a step. One that is under way for several is noted as often, so a trace
/// also tells how long each took.
pub fn note(sim: &Sim<'_>, trace: &Trace) {
    sim.links(|links| {
        for packet in links.flatten() {
            let (from, to) = packet.pair();
            let what = match packet.protocol() {
                Protocol::Tcp(Segment::Data(number, _)) => format!("data {number}"),
                Protocol::Tcp(Segment::Syn(_)) => "SYN".to_owned(),
                Protocol::Tcp(Segment::Fin(_)) => "FIN".to_owned(),
                Protocol::Tcp(Segment::Rst) => "RST".to_owned(),
                Protocol::Udp(_) => "UDP".to_owned(),
            };
            trace.note_at(sim.elapsed(), format!("{from} → {to}"), what);
        }
    });
}
