//! Bonds that the datapath balances: each packet leaves by the member that its hash selects, on every path that leads there.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::rng::Rng;
use base::{DpPort, DropReason, PortNo};
use common::{TestHandler, TestPort, numbered_frame, only, out, plain_mask, stepped};
use datapath::Datapath;
use dpif::{BondId, BondTable, Bonds, DpAction, DpActions, Dpif, HashKind};
use flow::{Field, hash};
use packet::Packet;

const BOND: BondId = BondId(3);
const LB_OUTPUT: DpAction = DpAction::LbOutput(BOND);
/// The port that receives, and the members.
const PORTS: u32 = 4;

fn ports(dp: &Datapath) -> Vec<Arc<TestPort>> {
    (1..=PORTS)
        .map(|n| {
            let port = TestPort::new(&format!("p{n}"));
            assert_eq!(dp.port_add(port.clone(), Some(DpPort(n))).expect("opens"), DpPort(n));
            port
        })
        .collect()
}

/// A table in which some buckets have no member.
fn table(rng: &mut Rng) -> BondTable {
    let mut table = BondTable { hash_basis: rng.below(5) as u32, ..BondTable::default() };
    let members = 1 + rng.below(u64::from(PORTS) - 1);
    table.buckets.iter_mut().for_each(|bucket| {
        *bucket = (rng.below(8) > 0).then(|| DpPort(2 + rng.below(members) as u32));
    });
    table
}

/// TCP, UDP or another protocol over IPv4 or IPv6, whole or a fragment, with and without tags, or something else.
fn frame(rng: &mut Rng) -> Vec<u8> {
    let mut frame = numbered_frame(0, 12);
    frame.truncate(12);
    for _ in 0..rng.below(3) {
        frame.extend([0x81, 0, 0, 1 + rng.below(2) as u8]);
    }
    let ports = [0, rng.below(9) as u8, 0, rng.below(9) as u8];
    let proto = [6, 6, 6, 17, 17, 17, 132, 1][rng.below(8) as usize];
    let address = 1 + rng.below(9) as u8;
    match rng.below(6) {
        0 => frame.extend([0x88, 0xb5, 1, 2, 3, 4]),
        1 => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, if proto == 1 { 58 } else { proto }, 64]);
            frame.extend([&[0xfe, 0x80][..], &[0; 13], &[address], &[0xfe, 0x80], &[0; 13], &[9]].concat());
            frame.extend(ports);
            frame.extend([[0; 8], [0x50, 0, 0, 0, 0, 0, 0, 0]].concat());
            frame.extend([0; 20]);
        }
        _ => {
            let fragment = if rng.below(6) == 0 { 0x20 } else { 0 };
            frame.extend([8, 0, 0x45, 0, 0, 60, 0, 0, fragment, 0, 64, proto, 0, 0, 10, 0, 0, address, 10, 0, 0, 2]);
            frame.extend(ports);
            frame.extend([[0; 8], [0x50, 0, 0, 0, 0, 0, 0, 0]].concat());
            frame.extend([0; 20]);
        }
    }
    frame
}

/// What becomes of packets, by looking at each alone.
#[derive(Default)]
struct Twin {
    sent: BTreeMap<u32, Vec<Vec<u8>>>,
    dropped: u64,
    loads: BTreeMap<u8, u64>,
}

impl Twin {
    fn lb_output(&mut self, table: &BondTable, frame: &[u8]) {
        let (key, _) = flow::extract(frame, PortNo(1));
        let bucket = hash::l4(&key, table.hash_basis) as u8;
        *self.loads.entry(bucket).or_default() += frame.len() as u64;
        match table.buckets[usize::from(bucket)] {
            Some(port) => self.sent.entry(port.0).or_default().push(frame.to_vec()),
            None => self.dropped += 1,
        }
    }
}

fn sent(ports: &[Arc<TestPort>]) -> BTreeMap<u32, Vec<Vec<u8>>> {
    let of = |port: &Arc<TestPort>| port.sent().iter().map(|packet| packet.data().to_vec()).collect::<Vec<_>>();
    (1..).zip(ports.iter().map(of)).filter(|(_, sent)| !sent.is_empty()).collect()
}

/// Packets arrive in batches, alone and with other outputs, while tables change.
#[test]
fn packets_leave_by_their_bucket() {
    let mut rng = Rng::seeded(5);
    let cases = 60u64;
    for case in 0..cases {
        let dp = stepped();
        let ports = ports(&dp);
        let with_others = case % 3 == 1;
        let actions: DpActions =
            if with_others { [out(4), LB_OUTPUT, out(1), LB_OUTPUT].into() } else { only(LB_OUTPUT) };
        // Few flows, which many batches take one of, or a flow for each address.
        let mask = if case % 2 == 0 { plain_mask() } else { [Field::Ipv4Src].into_iter().fold(plain_mask(), with) };
        dp.set_handler(TestHandler::new(Box::new(move |_, _| (actions.clone(), Some(mask.clone())))));
        let mut current = table(&mut rng);
        dp.bond_set(BOND, &current);
        let mut twin = Twin::default();
        let kind = frame(&mut rng);
        for _ in 0..40 {
            if rng.below(8) == 0 {
                current = table(&mut rng);
                dp.bond_set(BOND, &current);
            }
            let is_one_kind = rng.below(2) == 0;
            for _ in 0..=rng.below(32) {
                let mut frame = if is_one_kind { kind.clone() } else { frame(&mut rng) };
                // Packets of one flow with different ports.
                if let (true, Some(port)) = (is_one_kind && frame.len() > 40, frame.get_mut(35)) {
                    *port = rng.below(40) as u8;
                }
                ports[0].receive(&frame);
                if with_others {
                    twin.sent.entry(4).or_default().push(frame.clone());
                }
                twin.lb_output(&current, &frame);
                if with_others {
                    twin.sent.entry(1).or_default().push(frame.clone());
                    twin.lb_output(&current, &frame);
                }
            }
            dp.run_until_idle(10);
        }
        let sort = |mut sent: BTreeMap<u32, Vec<Vec<u8>>>| {
            sent.values_mut().for_each(|frames| frames.sort());
            sent
        };
        assert_eq!(sort(sent(&ports)), sort(twin.sent), "case {case}");
        let drops: &[_] = if twin.dropped > 0 { &[(DropReason::NoBond, twin.dropped)] } else { &[] };
        assert_eq!(dp.drops(), drops);
        let loads = dp.bond_take_loads(BOND).expect("the bond");
        let loads: BTreeMap<u8, u64> = (0..=255).zip(*loads).filter(|(_, bytes)| *bytes > 0).collect();
        assert_eq!(loads, twin.loads);
    }
    tally::report!("{cases} cases");
}

fn with(mut mask: flow::FlowMask, field: Field) -> flow::FlowMask {
    mask.add_mask(field, u128::MAX);
    mask
}

/// A packet has the bucket that it has when it recirculates with its hash.
#[test]
fn the_hash_is_that_of_recirculated_packets() {
    let mut rng = Rng::seeded(6);
    let dp = stepped();
    let ports = ports(&dp);
    let mut current = table(&mut rng);
    current.buckets.iter_mut().for_each(|bucket| *bucket = bucket.or(Some(DpPort(2))));
    dp.bond_set(BOND, &current);
    let (basis, buckets) = (current.hash_basis, current.buckets.clone());
    dp.set_handler(TestHandler::new(Box::new(move |_, key| {
        let mut mask = plain_mask();
        mask.add_mask(Field::RecircId, u32::MAX.into());
        let list = match key.get(Field::RecircId) {
            0 => vec![LB_OUTPUT, DpAction::Hash(HashKind::L4, basis), DpAction::Recirc(1)],
            _ => {
                mask.add_mask(Field::DpHash, 0xff);
                let bucket = key.get(Field::DpHash) as usize & 0xff;
                buckets[bucket].map(DpAction::Output).into_iter().collect()
            }
        };
        (list.into(), Some(mask))
    })));
    for _ in 0..200 {
        ports[0].receive(&frame(&mut rng));
        dp.run_until_idle(10);
    }
    for (port, frames) in sent(&ports) {
        assert!(frames.chunks(2).all(|pair| matches!(pair, [a, b] if a == b)), "port {port}");
    }
}

#[test]
fn packets_of_unknown_bonds_are_counted() {
    let dp = stepped();
    let ports = ports(&dp);
    dp.set_handler(TestHandler::always(vec![out(2), LB_OUTPUT]));
    let send = |n| {
        (0..n).for_each(|n| ports[0].receive(&numbered_frame(n, 60)));
        dp.run_until_idle(10);
    };
    send(3);
    assert_eq!(dp.drops(), [(DropReason::NoBond, 3)]);
    let result = dp.execute(DpPort(1), Packet::from_slice(&numbered_frame(1, 60)), &only(LB_OUTPUT));
    assert!(result.is_err());
    let all = BondTable { buckets: Box::new([Some(DpPort(3)); 256]), ..BondTable::default() };
    dp.bond_set(BOND, &all);
    assert_eq!(dp.bonds(), [(BOND, all)]);
    send(5);
    assert_eq!((dp.drops(), ports[2].sent().len()), (vec![(DropReason::NoBond, 4)], 5));
    dp.bond_del(BOND);
    send(2);
    assert_eq!((dp.drops(), ports[2].sent().len()), (vec![(DropReason::NoBond, 6)], 0));
}

/// Truncated packets leave truncated, and only by the bond.
#[test]
fn truncation_applies_to_the_members() {
    let dp = stepped();
    let ports = ports(&dp);
    let table = BondTable { buckets: Box::new(std::array::from_fn(|n| Some(DpPort(2 + n as u32 % 2)))), hash_basis: 0 };
    dp.bond_set(BOND, &table);
    dp.set_handler(TestHandler::always(vec![DpAction::Trunc(20), LB_OUTPUT, out(4)]));
    (0..9).for_each(|n| ports[0].receive(&numbered_frame(n, 60)));
    dp.run_until_idle(10);
    let lens = |port: usize| ports[port].sent().iter().map(Packet::len).collect::<Vec<_>>();
    assert_eq!([lens(1), lens(2)].concat(), [20; 9]);
    assert_eq!(lens(3), [60; 9]);
}
