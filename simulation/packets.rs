//! The packets of a simulation.
//!
//! Owns what is noted of a packet: source, destination, kind, sequence number and length. Not its contents,
//! which TLS makes differ from run to run.

use turmoil::{Protocol, Segment, Sim};

use crate::trace::Trace;

/// Notes every packet that is in flight after a step. A packet in flight for several steps is noted in each,
/// so a trace also shows its delay.
pub fn note(sim: &Sim<'_>, trace: &Trace) {
    sim.links(|links| {
        for packet in links.flatten() {
            let (from, to) = packet.pair();
            let what = match packet.protocol() {
                Protocol::Tcp(Segment::Data(number, bytes)) => {
                    format!("data {number} of {} bytes", bytes.len())
                }
                Protocol::Tcp(Segment::Syn(_)) => "SYN".to_owned(),
                Protocol::Tcp(Segment::Fin(_)) => "FIN".to_owned(),
                Protocol::Tcp(Segment::Rst) => "RST".to_owned(),
                Protocol::Udp(_) => "UDP".to_owned(),
            };
            trace.note_at(sim.elapsed(), format!("{from} → {to}"), what);
        }
    });
}
