//! `time/` and `netdev-dummy/`: what tests drive a switch with.

use super::act;
use crate::devices::Devices;
use crate::types::DummyLevel;
use flow::compose::{PAYLOAD, carries_payload};
use flow::text::NoNames;
use std::sync::Arc;
use unixctl::Commands;

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    act(commands, devices, ("time/stop", "", 0..=0), |d, _| {
        d.stop_time();
        Ok(String::new())
    });
    let of_warp = Arc::clone(devices);
    commands.register_async("time/warp", "[large_msecs] msecs", 1..=2, move |args| warp(Arc::clone(&of_warp), args));
    if devices.types.dummy == DummyLevel::Off {
        return;
    }
    for (name, usage, least, most) in netdev::dummy::Registry::COMMANDS {
        act(commands, devices, (name, usage, least..=most), move |d, args| match name {
            "netdev-dummy/receive" => d.dummies.command_receive(args, &frame_of),
            "netdev-dummy/set-admin-state" => d.dummies.command_set_admin_state(args),
            _ => d.dummies.command_conn_state(args),
        });
    }
}

/// The most steps of one `time/warp`: a minute's work or so, in which a step of a millisecond covers a quarter of an hour.
const STEPS_MAX: u64 = 1_000_000;

/// With two numbers, the first is gone over in steps of the second, and everything due happens in between. The control
/// thread does other work after each step.
async fn warp(devices: Arc<Devices>, args: Vec<String>) -> Result<String, String> {
    let (total, step) = warp_of(&args)?;
    let mut left = total;
    while left > 0 {
        let by = left.min(step);
        devices.warp_time(by);
        left -= by;
        tokio::task::yield_now().await;
    }
    Ok("warped".to_owned())
}

/// How far a warp goes and in which steps, in milliseconds.
fn warp_of(args: &[String]) -> Result<(u64, u64), String> {
    let positive = |n: &String| n.parse::<u64>().ok().filter(|n| *n > 0).ok_or("invalid MSECS");
    let (total, step) = match args {
        // As in Open vSwitch, digits at the start of the first of two numbers count.
        [total, step] => {
            let total = u64::try_from(cli::leading_integer(total, 10)).map_err(|_| "invalid MSECS")?;
            (total, positive(step)?)
        }
        [total] => (positive(total)?, positive(total)?),
        _ => return Err("invalid MSECS".to_owned()),
    };
    if total.div_ceil(step) > STEPS_MAX {
        return Err(format!("{total} ms in steps of {step} ms are more than {STEPS_MAX} steps"));
    }
    Ok((total, step))
}

/// A frame with this flow, with zeros up to a length if one is given.
fn frame_of(text: &str, len: Option<usize>) -> Result<packet::Packet, String> {
    let key = flow_of(text)?;
    let payload = match len {
        None if carries_payload(&key) => PAYLOAD.to_vec(),
        None => Vec::new(),
        Some(len) => {
            let headers = flow::compose::compose(&key, &[]).len();
            let payload = len.checked_sub(headers).ok_or_else(|| format!("the headers take {headers} bytes"))?;
            vec![0; payload.min(1 << 16)]
        }
    };
    let mut frame = flow::compose::compose(&key, &payload);
    // Some protocols, such as ARP, have nothing behind their headers: padding of Ethernet follows.
    frame.resize(frame.len().max(len.unwrap_or_default().min(1 << 16)), 0);
    Ok(packet::Packet::from_slice(&frame))
}

/// A flow as `netdev-dummy/receive` takes it: in the syntax of datapath flows, or in that of OpenFlow matches.
fn flow_of(text: &str) -> Result<flow::FlowKey, String> {
    // The port that is named does not matter: the packet comes in where the command says.
    let key = dpif::text::parse_key(text, &|_| Some(base::DpPort::NONE));
    match key {
        Ok(key) => Ok(key),
        Err(error) => flow::text::parse_exact(text, &NoNames).map_err(|_| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warp_has_an_end() {
        let parsed = |args: &[&str]| warp_of(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        assert_eq!(parsed(&["5000"]), Ok((5000, 5000)));
        assert_eq!(parsed(&["5000", "10"]), Ok((5000, 10)));
        assert_eq!(parsed(&["18446744073709551615"]), Ok((u64::MAX, u64::MAX)));
        assert_eq!((parsed(&["x", "5"]), parsed(&["7x", "5"])), (Ok((0, 5)), Ok((7, 5))));
        for wrong in [&["0"][..], &["x"], &["-1"], &["5", "0"], &["5", ""], &["-1", "5"]] {
            assert_eq!(parsed(wrong), Err("invalid MSECS".to_owned()), "{wrong:?}");
        }
        let many = "1000001 ms in steps of 1 ms are more than 1000000 steps";
        assert_eq!(parsed(&["1000001", "1"]), Err(many.to_owned()));
    }

    #[test]
    fn both_syntaxes() {
        let one = flow_of("in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0806)").unwrap();
        let mut other = flow_of("arp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02").unwrap();
        other.set_in_port(one.in_port());
        assert_eq!(one, other);
        assert_eq!(flow_of("xx").unwrap_err(), "syntax error at xx");
        assert_eq!(flow_of("in_port(1),bogus(1)").unwrap_err(), "syntax error at bogus(1)");
    }
}
