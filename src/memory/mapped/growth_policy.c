/* Growth policy: each rule is a few numbers, the reason for them, and a function. */
#include "memory/mapped/growth_policy.h"

/* Regions ---------------------------------------------------------------------------------------------------------- */

/* Blocks up to this size have chunks of their own: up to 16 KiB the traces of models behaved well, above 32 KiB worse,
 * and the bytes of small blocks are few. */
enum { MOST_SMALL = 16 * WI_KIB };

unsigned wi_growth_region(const wi_placement *p)
{
    if (p->guard_page)
        return WI_SHORT_LIVED;
    return p->memory_class == WEIR_CLASS_WEIGHTS ? WI_LONG_LIVED : p->charged <= MOST_SMALL ? WI_SMALL : WI_SHORT_LIVED;
}

/* Regions are kept apart until a request would be refused for it. Small blocks may stand among the large ones before
 * that. */
unsigned wi_growth_regions(const wi_placement *p, const unsigned **list)
{
    static const unsigned lists[WI_REGIONS][WI_REGIONS] = {
        [WI_LONG_LIVED] = {WI_LONG_LIVED, WI_SHORT_LIVED, WI_SMALL},
        [WI_SHORT_LIVED] = {WI_SHORT_LIVED, WI_LONG_LIVED, WI_SMALL},
        [WI_SMALL] = {WI_SMALL, WI_SHORT_LIVED, WI_LONG_LIVED},
    };
    unsigned own = wi_growth_region(p);
    *list = lists[own];
    return p->growth == WI_GROWTH_LAST_RESORT && !p->guard_page ? WI_REGIONS : own == WI_SMALL ? 2 : 1;
}

/* How near the budget is ------------------------------------------------------------------------------------------- */

/* The budget is far away while it is this many times what was ever in use, or is held. */
enum { FAR_TIMES = 4 };

static uint64_t growth_budget(const wi_growth_view *v)
{
    return v->held + v->creatable * v->granule;
}

/* The most that was ever in use, or is with so many bytes more. */
static uint64_t growth_reach(const wi_growth_view *v, uint64_t bytes)
{
    return wi_max(v->peak_in_use, v->in_use + bytes);
}

static bool growth_is_far(const wi_growth_view *v, uint64_t reach)
{
    return growth_budget(v) >= FAR_TIMES * wi_max(reach, v->held);
}

/* Chunks ----------------------------------------------------------------------------------------------------------- */

/* A block that shares a chunk with a neighbour strands half of the chunk on average. Ten chunks of 1/512 of the budget
 * strand a hundredth of it. Longer chunks mean fewer moves and calls of the driver, whose cost does not depend on the
 * length (H200, up to 64 MiB: create 8 to 11 us, map 22 to 30, unmap 14 to 19, release 10 to 25).
 *
 * Near the budget, chunks get shorter the more of them are shared. One request is made of at most 64 parts where that
 * stays below the share. Far from the budget, stranded bytes matter little; but where several streams free memory,
 * much of what is stranded is so for one of them alone. */
enum {
    SHARE = 512,                       /* of the budget near it; far from it of what is reached, with several streams */
    SHARE_WHEN_FAR = 64,               /* ... with one stream; reached is the larger of the most ever in use and held */
    SHARE_WHEN_SHARED = 35,            /* of the budget, for all chunks that blocks share: with one stream */
    SHARE_WHEN_SHARED_BY_STREAMS = 50, /* ... and with several */
    MOST_PARTS = 64
};
#define LONGEST_CHUNK (64 * WI_MIB)

uint64_t wi_growth_chunk(const wi_growth_view *v, uint64_t fresh)
{
    bool one_stream = v->stream_lists <= 1;
    uint64_t budget = growth_budget(v), reach = wi_max(v->held, growth_reach(v, 0));
    uint64_t bytes = reach / (one_stream ? SHARE_WHEN_FAR : SHARE);
    if (!growth_is_far(v, reach)) {
        uint64_t share = one_stream ? SHARE_WHEN_SHARED : SHARE_WHEN_SHARED_BY_STREAMS;
        bytes = wi_min(budget / SHARE, budget / (share * (1 + v->most_partly)));
    }
    if (one_stream)
        bytes = wi_max(bytes, wi_min(fresh * v->granule / MOST_PARTS, budget / SHARE));
    return wi_max(wi_min(bytes, LONGEST_CHUNK) / v->granule, 1);
}

/* Long-lived blocks go as they came, whole models at a time. Long chunks strand little there. They make suspends fast:
 * an unmap takes 20 us on an H200, whatever the length, and copies reach the speed of the link with more than 64 MiB. A
 * chunk where the blocks of two models meet cannot leave with either model, and neither can serve elsewhere what one
 * small block keeps in use: hence a share here, too, and granules alone in a small budget. Powers of two fill the slabs
 * of page-locked memory that copies are cut from (runtime/copy_memory.c). */
enum { TIMES_WHEN_LONG_LIVED = 4 }; /* SHARE of the budget */
#define LONGEST_OF_LONG_LIVED (256 * WI_MIB)

uint64_t wi_growth_long_chunk(const wi_growth_view *v, uint64_t fresh)
{
    uint64_t share = growth_budget(v) / SHARE / v->granule * TIMES_WHEN_LONG_LIVED;
    uint64_t most = wi_min(share, LONGEST_OF_LONG_LIVED / v->granule), power = 1;
    while (2 * power <= most)
        power *= 2;
    return wi_max(power, wi_growth_chunk(v, fresh));
}

/* Chunks up to this length are exactly as long as a request lacks. Longer chunks have four lengths from each power of two
 * to the next, so that models of different blocks have chunks of the same lengths, and chunks of a suspended model serve
 * another model. To destroy a chunk of 256 MiB takes ten times as long as one of 2 MiB. */
#define LONGEST_EXACT (32 * WI_MIB)

uint64_t wi_growth_step(uint64_t granule, uint64_t usual, uint64_t rest)
{
    uint64_t length = wi_min(usual, rest);
    if (length * granule <= LONGEST_EXACT)
        return length;
    unsigned below = 61u - (unsigned)__builtin_clzll(length | 4); /* the highest three bits stay */
    return length >> below << below;
}

/* Moves ------------------------------------------------------------------------------------------------------------ */

/* Near the budget, whatever it leaves may be created. Far from it, a little more than was ever in use may be held;
 * beyond that, idle chunks are moved as long as moves are rare. A token bucket says whether they are: each allocation
 * earns a token, each batch of moves costs 2,000. With the bucket empty more may be held. That bound rises by a percent
 * for each 1,024 of excess, which grows where more than one allocation in 16 moves: without the rise, every allocation
 * there would move for ever. */
enum {
    SLACK_PERCENT = 3,            /* above what was ever in use, while there are tokens */
    SLACK_PERCENT_WHEN_EMPTY = 9, /* ... and while there are none */
    TOKENS_EARNED = 1,            /* by an allocation */
    MOVE_COST = 2000,             /* in tokens */
    MOST_TOKENS = 256000,         /* saved up, and there at the start, while memory takes its form */
    ALLOCATIONS_A_MOVE = 16,      /* that are worth one: each forgets 1 of excess */
    EXCESS_OF_A_PERCENT = 1024,
    MOST_EXCESS = 100 * EXCESS_OF_A_PERCENT
};

/* Where several streams free memory, moves can have a share of the time, too (option `move_time`): what a stream has just
 * freed is moved to another, and back in the next step. An H200 takes 190 us for a batch, in which a program launches ten
 * kernels: four streams that read each other's arrays spent 17 % of their time so, with a batch in 56 allocations;
 * training and serving at once spend 0.9 %. Time above the share is a debt, and the bound rises by a percent for a part
 * of it, until moves are within their share. */
enum {
    DEBT_OF_A_PERCENT = 1000 * 1000, /* nanoseconds */
    MOST_DEBT = 50 * DEBT_OF_A_PERCENT,
    MOST_MOVE_SAVED = 20 * 1000 * 1000 /* nanoseconds, and there at the start */
};

/* Several holes are filled rather than one, where that takes at most a quarter more: replayed traces moved least so. */
enum { FILL_SHARE = 4 };

static uint64_t growth_percent(const wi_growth_policy *policy, const wi_growth_view *v)
{
    uint64_t owed = v->stream_lists > 1 ? policy->move_debt / DEBT_OF_A_PERCENT : 0;
    return owed + (policy->move_tokens >= MOVE_COST
                       ? SLACK_PERCENT
                       : SLACK_PERCENT_WHEN_EMPTY + policy->excess_moves / EXCESS_OF_A_PERCENT);
}

uint64_t wi_growth_soft_limit(const wi_growth_policy *policy, const wi_growth_view *v, uint64_t bytes)
{
    uint64_t reach = growth_reach(v, bytes);
    if (!growth_is_far(v, reach))
        return v->creatable;
    uint64_t most = reach + reach * growth_percent(policy, v) / 100;
    return most > v->held ? wi_min(v->creatable, (most - v->held + v->granule - 1) / v->granule) : 0;
}

void wi_growth_earn(wi_growth_policy *policy, uint64_t allocations)
{
    uint64_t since = allocations - policy->allocations;
    policy->move_tokens = wi_min(policy->move_tokens + TOKENS_EARNED * since, MOST_TOKENS);
    policy->excess_moves -= wi_min(policy->excess_moves, since);
    policy->allocations = allocations;
}

void wi_growth_pay(wi_growth_policy *policy)
{
    policy->move_tokens -= wi_min(policy->move_tokens, MOVE_COST);
    policy->excess_moves = wi_min(policy->excess_moves + ALLOCATIONS_A_MOVE, MOST_EXCESS);
}

void wi_growth_pay_time(wi_growth_policy *policy, uint64_t start, uint64_t end)
{
    if (policy->move_percent == 0)
        return;
    uint64_t earned = (start - policy->move_at) / 100 * policy->move_percent, took = end - start;
    uint64_t paid = wi_min(earned, policy->move_debt);
    policy->move_debt -= paid;
    policy->move_saved = wi_min(policy->move_saved + earned - paid, MOST_MOVE_SAVED);
    uint64_t spent = wi_min(took, policy->move_saved);
    policy->move_saved -= spent;
    policy->move_debt = wi_min(policy->move_debt + took - spent, MOST_DEBT);
    policy->move_at = end;
}

uint64_t wi_growth_fill(uint64_t missing)
{
    return missing + missing / FILL_SHARE;
}

/* Waits ------------------------------------------------------------------------------------------------------------ */

/* Before more is held than the soft limit, a request waits a while for what streams have freed. Else what one stream
 * freed in the last milliseconds is created once more for another that asks just then, and stays held: two models on
 * an H200 held 1.04 of their peak after ten seconds, and 1.2 to 1.6 after a minute. The request's own stream may have
 * what it has freed where that lies, but an idle chunk can be moved only when the device is past it.
 *
 * The host waits, no stream does. A stream that its program holds up costs a small share of the time, and cannot come
 * to wait for itself. */
enum { MOST_SAVED = 100 * 1000 * 1000, MOST_AT_ONCE = 10 * 1000 * 1000 }; /* nanoseconds */

bool wi_growth_may_wait(const wi_placement *p, unsigned stream_lists)
{
    return p->may_wait && p->native && !p->thread_bound && !p->guard_page && p->growth == WI_GROWTH_NORMAL &&
           stream_lists > 0;
}

void wi_growth_earn_wait(wi_growth_policy *policy, uint64_t now)
{
    uint64_t earned = (now - policy->wait_at) / 100 * policy->wait_percent;
    policy->wait_left = wi_min(policy->wait_left + earned, MOST_SAVED);
    policy->wait_at = now;
}

uint64_t wi_growth_wait_until(const wi_growth_policy *policy, uint64_t now, uint64_t most)
{
    return now + wi_min(wi_min(policy->wait_left, MOST_AT_ONCE), most);
}

void wi_growth_pay_wait(wi_growth_policy *policy, uint64_t nanoseconds)
{
    policy->wait_left -= wi_min(policy->wait_left, nanoseconds);
}

/* The device ------------------------------------------------------------------------------------------------------- */

/* Where the device claims to have what it has just refused, half of that is asked for next, until it can be had. */
uint64_t wi_growth_device_has(uint64_t available, uint64_t missing)
{
    return available < missing ? available : missing / 2;
}

void wi_growth_begin(wi_growth_policy *policy, unsigned move_percent, unsigned wait_percent, uint64_t now)
{
    *policy = (wi_growth_policy){.move_tokens = MOST_TOKENS,
                                 .move_percent = move_percent,
                                 .move_saved = MOST_MOVE_SAVED,
                                 .move_at = now,
                                 .wait_percent = wait_percent,
                                 .wait_left = wait_percent > 0 ? MOST_SAVED : 0,
                                 .wait_at = now};
}
