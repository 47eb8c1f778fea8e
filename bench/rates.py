"""The highest rate that passes without loss, by bisection: what `tse` and `ports` ask on real ports."""

import common

# A rate counts as free of loss below this part; with none at all, one stray packet would decide.
LOSS_MAX = 0.001
# The search for a rate ends when its bounds are as near as this.
PRECISION = 0.03
RATE_FIRST, RATE_LAST = 50_000.0, 100.0
TRIES = 3
# A sender that misses its rate by more than this cannot show that the rate is free of loss.
SENDER_SLACK = 0.02


def loss_free_pps(trial, first=RATE_FIRST):
    """The highest rate that arrives whole, between one that does and one that does not, packets a second. `trial(rate)`
    sends and gives the rate that the sender reached, and the part of the packets that did not arrive."""
    good, bad, rate = 0.0, None, max(first, RATE_LAST)
    while bad is None or (bad - good > PRECISION * bad and bad > RATE_LAST):
        reached, passed = best_trial(trial, rate)
        if passed:
            good = max(good, reached)
        if not passed or reached < rate * (1 - SENDER_SLACK):
            bad = rate
        rate = 2 * rate if bad is None else (good + bad) / 2
    return good


def best_trial(trial, rate):
    """The rate reached, and whether it was free of loss in one of a few tries: what else the machine does takes its
    moments from each."""
    best = 0.0, False
    for _ in range(TRIES):
        reached, lost = trial(rate)
        common.say(f"  {rate:,.0f} a second: {reached:,.0f} sent, {lost:.3%} lost")
        if lost < LOSS_MAX:
            best = max(best, (reached, True), key=lambda one: (one[1], one[0]))
            if reached >= rate * (1 - SENDER_SLACK):
                break
    return best
