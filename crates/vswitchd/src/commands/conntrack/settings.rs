//! Settings of a tracker.

use super::super::{act, show};
use super::{answer, invalid, open, options};
use crate::devices::Devices;
use openflow::ct_flush::leading_u32;
use std::sync::Arc;
use unixctl::Commands;

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    act(commands, devices, ("dpctl/ct-set-maxconns", "[dp] maxconns", 1..=2), |d, args| {
        let words = options(args)?.1;
        let (dp, _) = open(d, words, 2)?;
        let max = words.last().and_then(|text| leading_u32(text));
        dp.dpif.set_connections_max(max.ok_or_else(|| invalid("maxconns missing or malformed"))?);
        Ok("setting maxconns successful\n".to_owned())
    });
    show(commands, devices, ("dpctl/ct-get-maxconns", "[dp]", 0..=1), |d, args, format| {
        let max = open(d, options(args)?.1, 1)?.0.dpif.connections_max();
        Ok(answer(format, || format!("{max}\n"), || max.into()))
    });
    for (name, on, text) in [
        ("dpctl/ct-enable-tcp-seq-chk", true, "enabling TCP sequence checking successful\n"),
        ("dpctl/ct-disable-tcp-seq-chk", false, "disabling TCP sequence checking successful\n"),
    ] {
        act(commands, devices, (name, "[dp]", 0..=1), move |d, args| {
            open(d, options(args)?.1, 2)?.0.dpif.set_checks_tcp_sequence(on);
            Ok(text.to_owned())
        });
    }
    show(commands, devices, ("dpctl/ct-get-tcp-seq-chk", "[dp]", 0..=1), |d, args, format| {
        let on = open(d, options(args)?.1, 1)?.0.dpif.checks_tcp_sequence();
        let state = if on { "enabled" } else { "disabled" };
        Ok(answer(format, || format!("TCP sequence checking: {state}\n"), || on.into()))
    });
    act(commands, devices, ("dpctl/ct-set-sweep-interval", "[dp] ms", 1..=2), |d, args| {
        let words = options(args)?.1;
        let (dp, _) = open(d, words, 2)?;
        let ms = words.last().and_then(|text| text.trim_ascii().parse().ok()).filter(|ms| *ms != 0);
        dp.dpif.set_sweep_interval_ms(ms.ok_or_else(|| invalid("invalid sweep value"))?);
        Ok("setting sweep interval successful\n".to_owned())
    });
    show(commands, devices, ("dpctl/ct-get-sweep-interval", "[dp]", 0..=1), |d, args, format| {
        let ms = open(d, options(args)?.1, 1)?.0.dpif.sweep_interval_ms();
        Ok(answer(format, || format!("{ms}\n"), || ms.into()))
    });
}
