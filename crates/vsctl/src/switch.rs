//! The commands for the switch as a whole: init and emer-reset.

use ovsdb::Datum;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{OpenVSwitch, bridge, interface, open_vswitch, port};
use ovsdb_client::typed::AnyColumn;

use crate::command::Command;
use crate::context::{Context, Failure, Output};
use crate::needs::Needs;

type Done = Result<(), Failure>;

pub(crate) fn init_needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.rows(OpenVSwitch);
    Ok(())
}

pub(crate) fn init(context: &mut Context<'_>, _: &Command, _: &mut Output) -> Done {
    context.root();
    Ok(())
}

/// The columns that emer-reset makes empty or false.
const RESET: &[AnyColumn] = &columns! {
    open_vswitch { MANAGER_OPTIONS, SSL }
    bridge { CONTROLLER, FAIL_MODE, FLOOD_VLANS, MIRRORS, NETFLOW, SFLOW, IPFIX, OTHER_CONFIG }
    port { OTHER_CONFIG }
    interface { INGRESS_POLICING_RATE, INGRESS_POLICING_BURST }
};

pub(crate) fn emer_reset_needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns(RESET);
    Ok(())
}

pub(crate) fn emer_reset(context: &mut Context<'_>, _: &Command, _: &mut Output) -> Done {
    let schema = context.schema.clone();
    for reset in RESET {
        let AnyColumn { table, column, .. } = *reset;
        let Some(kind) = schema.table(table).and_then(|found| found.column(column)).map(|found| &found.kind) else {
            continue;
        };
        for row in context.txn.rows(table) {
            let mut value = Datum::default_of(kind);
            if *reset == bridge::OTHER_CONFIG.any()
                && let Some(mac) = context.txn.datum(table, row, column).and_then(|config| config.get_str("hwaddr"))
            {
                value = Datum::map([("hwaddr", mac)]);
            }
            context.txn.set_datum(table, row, column, value);
        }
    }
    context.forget_model();
    Ok(())
}
