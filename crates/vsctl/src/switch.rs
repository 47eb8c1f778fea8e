//! The commands for the switch as a whole: init and emer-reset.

use ovsdb::Datum;

use crate::{Command, Context, Done, Needs, Output};

pub(crate) fn init_needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns("Open_vSwitch", &[]);
    Ok(())
}

pub(crate) fn init(context: &mut Context<'_>, _: &Command, _: &mut Output) -> Done {
    context.root();
    Ok(())
}

/// The columns that emer-reset makes empty or false.
const RESET: &[(&str, &[&str])] = &[
    ("Open_vSwitch", &["manager_options", "ssl"]),
    ("Bridge", &["controller", "fail_mode", "flood_vlans", "mirrors", "netflow", "sflow", "ipfix", "other_config"]),
    ("Port", &["other_config"]),
    ("Interface", &["ingress_policing_rate", "ingress_policing_burst"]),
];

/// The tables whose rows lose their references by that.
const UNREFERENCED: &[&str] = &["Controller", "Manager", "Mirror", "NetFlow", "sFlow", "SSL"];

pub(crate) fn emer_reset_needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    for (table, columns) in RESET {
        needs.columns(table, columns);
    }
    UNREFERENCED.iter().for_each(|table| needs.columns(table, &[]));
    Ok(())
}

pub(crate) fn emer_reset(context: &mut Context<'_>, _: &Command, _: &mut Output) -> Done {
    let schema = context.schema.clone();
    for (table, columns) in RESET {
        let Some(found) = schema.table(table) else { continue };
        for row in context.txn.rows(table) {
            for column in *columns {
                let Some(kind) = found.column(column).map(|column| &column.kind) else { continue };
                let mut value = Datum::default_of(kind);
                if (*table, *column) == ("Bridge", "other_config")
                    && let Some(mac) = context.txn.datum(table, row, column).and_then(|config| config.get_str("hwaddr"))
                {
                    value = Datum::map([("hwaddr", mac)]);
                }
                context.txn.set_datum(table, row, column, value);
            }
        }
    }
    for table in UNREFERENCED {
        for row in context.txn.rows(table) {
            context.txn.forget_row(table, row);
        }
    }
    context.drop_model();
    Ok(())
}
