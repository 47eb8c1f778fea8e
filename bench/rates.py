"""The highest rate without loss, by bisection, for `tse` and `ports`."""

import common

# The loss below which a rate counts as free of loss; at zero, one stray packet would decide.
LOSS_MAX = 0.001
# The search ends when its bounds are this close.
PRECISION = 0.03
RATE_FIRST, RATE_LAST = 50_000.0, 100.0
TRIES = 3
# A sender that misses its rate by more than this cannot test that rate.
SENDER_SLACK = 0.02


def loss_free_pps(trial, first=RATE_FIRST):
    """The highest rate without loss, between one that passes and one that does not, in packets a second.
    `trial(rate)` sends and returns the rate that the sender reached, and the lost share of the packets."""
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
    """The rate reached, and whether one of a few tries was free of loss: other load on the machine disturbs some of
    them."""
    best = 0.0, False
    for _ in range(TRIES):
        reached, lost = trial(rate)
        common.say(f"  {rate:,.0f} a second: {reached:,.0f} sent, {lost:.3%} lost")
        if lost < LOSS_MAX:
            best = max(best, (reached, True), key=lambda one: (one[1], one[0]))
            if reached >= rate * (1 - SENDER_SLACK):
                break
    return best
