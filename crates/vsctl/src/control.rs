//! Connections to controllers, the fail mode, and TLS files.

use dbctl::manager::{inactivity_probe, insert_targets, print_targets, replace};
use ovsdb::Datum;

use crate::{Command, Context, Done, Failure, Needs, Output, Vsctl};

pub(crate) fn controller_needs(needs: &mut Needs<'_>, command: &Command) -> Done {
    crate::bridge::needs(needs, command)?;
    needs.columns("Controller", &["target", "inactivity_probe"]);
    Ok(())
}

pub(crate) fn ssl_needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns("Open_vSwitch", &["ssl"]);
    needs.columns("SSL", &["private_key", "certificate", "ca_cert", "bootstrap_ca_cert"]);
    Ok(())
}

pub(crate) fn get_controller(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.bridge(command.arg(0))?.row;
    txn.verify_column("Bridge", row, "controller");
    let rows = txn.uuids("Bridge", row, "controller");
    print_targets(txn, "Controller", rows, output);
    Ok(())
}

pub(crate) fn del_controller(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.real_bridge(command.arg(0))?.row;
    replace(txn, ("Bridge", row, "controller"), "Controller", Datum::empty());
    Ok(())
}

pub(crate) fn set_controller(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.real_bridge(command.arg(0))?.row;
    let probe = inactivity_probe(command)?;
    let rows = insert_targets::<Vsctl>(txn, "Controller", command.args_from(1), probe);
    replace(txn, ("Bridge", row, "controller"), "Controller", rows);
    Ok(())
}

pub(crate) fn get_fail_mode(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.bridge(command.arg(0))?.row;
    txn.verify_column("Bridge", row, "fail_mode");
    let mode = txn.string("Bridge", row, "fail_mode");
    if !mode.is_empty() {
        output.line(mode);
    }
    Ok(())
}

pub(crate) fn del_fail_mode(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.real_bridge(command.arg(0))?.row;
    txn.set_datum("Bridge", row, "fail_mode", Datum::empty());
    Ok(())
}

pub(crate) fn set_fail_mode(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.real_bridge(command.arg(0))?.row;
    let mode = command.arg(1);
    if mode != "standalone" && mode != "secure" {
        return Err(Failure::fatal("fail-mode must be \"standalone\" or \"secure\""));
    }
    txn.set_datum("Bridge", row, "fail_mode", mode);
    Ok(())
}

pub(crate) fn get_ssl(context: &mut Context<'_>, _: &Command, output: &mut Output) -> Done {
    let root = context.root();
    let txn = &mut context.txn;
    txn.verify_column("Open_vSwitch", root, "ssl");
    let Some(ssl) = txn.uuids("Open_vSwitch", root, "ssl").first().copied() else { return Ok(()) };
    for column in ["private_key", "certificate", "ca_cert", "bootstrap_ca_cert"] {
        txn.verify_column("SSL", ssl, column);
    }
    output.line(format!("Private key: {}", txn.string("SSL", ssl, "private_key")));
    output.line(format!("Certificate: {}", txn.string("SSL", ssl, "certificate")));
    output.line(format!("CA Certificate: {}", txn.string("SSL", ssl, "ca_cert")));
    output.line(format!("Bootstrap: {}", txn.boolean("SSL", ssl, "bootstrap_ca_cert")));
    Ok(())
}

pub(crate) fn del_ssl(context: &mut Context<'_>, _: &Command, _: &mut Output) -> Done {
    let root = context.root();
    replace(&mut context.txn, ("Open_vSwitch", root, "ssl"), "SSL", Datum::empty());
    Ok(())
}

pub(crate) fn set_ssl(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let root = context.root();
    let txn = &mut context.txn;
    let ssl = txn.insert_row("SSL");
    txn.set_datum("SSL", ssl, "private_key", command.arg(0));
    txn.set_datum("SSL", ssl, "certificate", command.arg(1));
    txn.set_datum("SSL", ssl, "ca_cert", command.arg(2));
    txn.set_datum("SSL", ssl, "bootstrap_ca_cert", command.has("--bootstrap"));
    replace(txn, ("Open_vSwitch", root, "ssl"), "SSL", Datum::scalar(ssl));
    Ok(())
}
