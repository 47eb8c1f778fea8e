"""Scenarios of OVN over the switches and databases of both makers: what their networks show at the end is the same.

A scenario with a difference may run again, as the timers of OVN's programs, and the order in which they meet, may make one: the difference
is a warning then. See `chaos` for scenarios with kills.
"""

import warnings

import chaos
from shown import difference


def comparison(node, peers, make, attempts=3):
    """Returns the function that runs a scenario of the test `node`. `make` makes a network (`ovn.Network`), or several with the same
    methods, of Open vSwitch's daemons if its argument is `peers`, and of Flowstone's without an argument; the caller ends them. With a
    single attempt the first difference is a failure."""

    def one(scenario, settings, *maker):
        """What the network of a maker shows, and the number of steps."""
        each = make(*maker)
        counter = chaos.Chaos(each)
        try:
            with counter:
                each.start(**settings)
            scenario(each)
            with counter:
                return each.shown(), counter.steps
        except BaseException as error:
            error.add_note(f"with the daemons of {'Open vSwitch' if maker else 'Flowstone'}")
            raise

    def once(scenario, settings):
        theirs, _ = one(scenario, settings, peers)
        ours, steps = one(scenario, settings)
        return difference(ours, theirs), ours, steps

    def run(scenario, **settings):
        with_kills = lambda seed, *results, **how: chaos.run(make, scenario, settings, f"{seed} {node.nodeid}", *results, **how)
        if chaos.seeds():
            results = one(scenario, settings)
            for seed in chaos.seeds():
                with_kills(seed, *results)
            return
        for further in reversed(range(attempts)):
            text, *results = once(scenario, settings)
            if not text:
                break
            assert further, text
            warnings.warn(f"a difference that may not show again:\n{text}", stacklevel=2)
        if seed := chaos.sampled(node.nodeid):
            with_kills(seed, *results, kills=chaos.FEW_KILLS)

    return run
