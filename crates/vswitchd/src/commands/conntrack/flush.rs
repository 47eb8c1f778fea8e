//! Removal of connections.

use super::super::{dpctl, show_blocking};
use super::{answer, invalid, options};
use crate::devices::Devices;
use openflow::ct_flush::CtFlush;
use std::sync::Arc;
use unixctl::Commands;

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    let usage = "[dp] [zone=N] [mark=X[/M]] [labels=Y[/N]] [ct-orig-tuple [ct-reply-tuple]]";
    show_blocking(commands, devices, ("dpctl/flush-conntrack", usage, 0..=6), |d, args, format| {
        let words = options(args)?.1;
        let (name, words) = match words.split_first() {
            Some((name, rest)) if dpctl::exists(d, name) => (Some(name.as_str()), rest),
            _ => (None, words),
        };
        let flush = CtFlush::parse(words).map_err(invalid)?;
        let dp =
            dpctl::selected(d, name).map_err(|e| format!("{e}\novs-vswitchd: Cannot open dpif (Invalid argument)"))?;
        let flushed = ofproto::ct_flush::execute(&*dp.dpif, &dp.full_name(), &flush);
        if flushed == 0 && ofproto::ct_flush::filter(&flush).key().is_some() {
            return Err("ovs-vswitchd: failed to flush conntrack (No such file or directory)".to_owned());
        }
        Ok(answer(format, String::new, || flushed.into()))
    });
}
