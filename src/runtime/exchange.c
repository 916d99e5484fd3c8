/* Exchange: a client leaves while another client comes back, and memory passes between the two piece by piece. The steps
 * are those of residency.c and resume.c. The coming client asks for room before each piece (memory/away.h), and the leaving
 * client gives some of its pieces then. */
#include "base/system.h"
#include "runtime/residence.h"

#include <weir/exchange.h>

#include <stdlib.h>

typedef struct wi_exchange {
    weir_client *leaves, *comes;
    wi_residence *from, *to; /* of `leaves`, and of `comes` */
    wi_event *events;        /* behind the copy of each piece that leaves */
    size_t next;             /* the first piece that has not left */
    uint64_t asked, given;   /* memory */
    uint64_t kept;           /* bytes promised to `leaves`: of pieces that have left, and of its guarantee */
    uint64_t passed;         /* bytes promised to `comes` that `leaves` had */
    uint64_t own;            /* bytes promised to `comes` of the guarantee that it has kept */
    bool pages_left;         /* the pages of elastic blocks of `leaves` were given back */
    bool copied;             /* copies of `leaves` were queued, as far as that went */
    bool begun;              /* in the ledger */
} wi_exchange;

static wi_ledger *exchange_ledger(const wi_exchange *x)
{
    return x->leaves->runtime->resource->base->resource.ledger;
}

/* The coming client gets promised bytes of the leaving client, as far as the former needs more. */
static weir_status exchange_pass_bytes(wi_exchange *x)
{
    uint64_t needs = x->to->taken - wi_min(x->to->taken, x->own);
    uint64_t bytes = wi_min(x->kept, needs - x->passed);
    if (bytes > 0 && !wi_ledger_pass(exchange_ledger(x), &x->leaves->account, &x->comes->account, bytes))
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY,
                         "the limits of %s and %s were changed, and leave no room to change places",
                         x->leaves->account.name, x->comes->account.name);
    x->kept -= bytes;
    x->passed += bytes;
    return WEIR_OK;
}

/* The next piece leaves behind its copy, and *gave is its memory. */
static weir_status exchange_pass_piece(wi_exchange *x, uint64_t *gave)
{
    const weir_runtime *runtime = x->leaves->runtime;
    wi_base *base = runtime->resource->base;
    wi_away *away = &x->from->away;
    wi_piece *piece = &away->pieces[x->next];
    uint64_t before = away->bytes;
    weir_status status = runtime->driver->wait(runtime->device, x->events[x->next], UINT64_MAX);
    if (status == WEIR_OK && piece->copy)
        piece->copy->good = true;
    if (status == WEIR_OK)
        status = base->table->away->pass(base, away, piece, gave);
    if (status != WEIR_OK)
        return status;
    x->next++;
    x->kept += away->bytes - before;
    return exchange_pass_bytes(x);
}

static weir_status exchange_make_room(wi_away *coming, uint64_t bytes, uint64_t *gave, void *client)
{
    wi_exchange *x = residence_of(client)->exchange;
    bool all = bytes == UINT64_MAX;
    (void)coming;
    x->asked += all ? 0 : bytes;
    weir_status status = exchange_pass_bytes(x);
    while (status == WEIR_OK && x->next < x->from->away.piece_count &&
           (all || x->given < x->asked || (bytes == 0 && *gave == 0))) {
        uint64_t one = 0;
        status = exchange_pass_piece(x, &one);
        *gave += one;
        x->given += one;
    }
    return status;
}

/* Bytes of blocks that are about to leave. */
static uint64_t exchange_count(const wi_away *away)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < away->run_count; i++)
        bytes += away->runs[i].bytes;
    return bytes;
}

/* Promises the coming client the unused part of the guarantee that it has kept, which nobody else can have. The promise
 * lasts until passed bytes are back: below the guarantee these would be free for third clients. */
static void exchange_own(wi_exchange *x)
{
    bool ignored;
    weir_client_stats now = {.struct_size = sizeof now};
    wi_ledger_account_snapshot(&x->comes->runtime->ledger, &x->comes->account, &now);
    uint64_t used = now.live + now.pending + now.promised + now.thread_cached;
    x->own = wi_min(x->to->away.bytes, now.guaranteed - wi_min(now.guaranteed, used));
    if (x->own > 0 && !wi_ledger_claim(exchange_ledger(x), &x->comes->account, x->own, &ignored))
        x->own = 0;
}

/* The coming client need not claim the bytes of the leaving client. */
static void exchange_begin(wi_exchange *x)
{
    wi_residence *to = x->to;
    x->begun = true;
    exchange_own(x);
    to->promised = x->own;
    to->offered =
        x->own + wi_ledger_begin_exchange(exchange_ledger(x), &x->leaves->account, exchange_count(&x->from->away),
                                          !x->from->options.keep_guarantee, &x->kept);
    to->taken = 0;
    to->exchange = x;
    to->away.make_room = exchange_make_room;
}

/* The resume is over, also after a failure, and asks for no more room. */
static void exchange_end(wi_exchange *x, bool came)
{
    wi_residence *to = x->to;
    x->own -= came ? wi_min(x->own, to->taken) : 0; /* bytes that are in use now */
    to->away.make_room = NULL;
    to->exchange = NULL;
    to->offered = to->promised = to->taken = 0;
}

/* Gives passed promises back to the leaving client. */
static void exchange_return_bytes(wi_exchange *x)
{
    wi_ledger *ledger = exchange_ledger(x);
    if (x->passed > 0 && wi_ledger_pass(ledger, &x->comes->account, &x->leaves->account, x->passed))
        x->kept += x->passed;
    else if (x->passed > 0)
        wi_ledger_cancel(ledger, &x->comes->account, x->passed);
    x->passed = 0;
    wi_ledger_cancel(ledger, &x->comes->account, x->own);
}

/* Resumes the leaving client into the bytes that are promised for that. True: all is back. */
static bool exchange_bring_back(wi_exchange *x)
{
    wi_residence *from = x->from;
    from->offered = from->promised = x->kept;
    weir_status status = wi_residence_resume(x->leaves, from, WEIR_STREAM_HOST, 0, "weir_client_exchange");
    x->kept -= status == WEIR_OK ? from->taken : 0;
    from->offered = from->promised = from->taken = 0;
    return status == WEIR_OK && wi_residence_is_back(x->leaves, from);
}

/* Follows a failure; the chosen blocks are still acquired. True: bytes of the leaving client stay away. */
static bool exchange_undo(wi_exchange *x)
{
    wi_base *base = x->leaves->runtime->resource->base;
    wi_saved_detail saved;
    wi_detail_save(&saved);
    if (x->begun)
        exchange_return_bytes(x);
    if (x->copied)
        wi_residence_copies_failed(x->leaves, x->from, !x->pages_left);
    bool left = x->next > 0 || x->pages_left;
    base->table->away->leave(base, &x->from->away); /* the passed pieces; the others stay */
    bool gone = left && !exchange_bring_back(x);
    if (x->begun && !left && !x->from->options.keep_guarantee)
        (void)!wi_ledger_guarantee_again(exchange_ledger(x), &x->leaves->account); /* its place was kept */
    if (x->kept > 0)
        wi_ledger_cancel(exchange_ledger(x), &x->leaves->account, x->kept);
    wi_detail_restore(&saved);
    return gone;
}

/* *gone: bytes of the leaving client are away at the end. */
static weir_status exchange_run(wi_exchange *x, const char *folder, weir_stream stream, bool *gone)
{
    wi_base *base = x->leaves->runtime->resource->base;
    bool chosen = false;
    weir_status status = wi_residence_choose(x->leaves, x->from, folder, &chosen);
    x->copied = status == WEIR_OK;
    if (status == WEIR_OK)
        status = wi_residence_copy(x->leaves, x->from, &x->events);
    if (status == WEIR_OK && x->from->pages.piece_count > 0) {
        status = wi_residence_release_pages(x->leaves, x->from);
        x->pages_left = status == WEIR_OK;
    }
    if (status == WEIR_OK) {
        exchange_begin(x);
        status = wi_residence_resume(x->comes, x->to, stream, x->from->options.wait, "weir_client_exchange");
        exchange_end(x, status == WEIR_OK);
    }
    if (status != WEIR_OK) {
        *gone = chosen && exchange_undo(x);
        return status;
    }
    base->table->away->leave(base, &x->from->away);
    if (x->kept > 0)
        wi_ledger_cancel(exchange_ledger(x), &x->leaves->account, x->kept);
    wi_ledger_cancel(exchange_ledger(x), &x->comes->account, x->own);
    *gone = true;
    return WEIR_OK;
}

static weir_status exchange_check(weir_client *leaves, const weir_suspend_options *how, weir_client *comes)
{
    const char *call = "weir_client_exchange";
    weir_suspend_options o = {.struct_size = sizeof o};
    weir_status status = wi_client_check(leaves, call);
    if (status == WEIR_OK)
        status = wi_client_check(comes, call);
    if (status == WEIR_OK)
        status = WI_COPY_OPTIONS_IN(weir_suspend_options, &o, how, call);
    if (status != WEIR_OK)
        return status;
    if (leaves == comes || leaves->runtime != comes->runtime)
        return weir_fail(WEIR_ERR_INVALID, "%s: it takes two clients of one runtime", call);
    if (o.show)
        return weir_fail(WEIR_ERR_INVALID, "%s: what leaves cannot be shown; suspend %s with `show` for that", call,
                         leaves->account.name);
    return WEIR_OK;
}

weir_status weir_client_exchange(weir_client *leaves, const weir_suspend_options *how, weir_client *comes,
                                 weir_stream stream, weir_residency *out)
{
    const char *call = "weir_client_exchange", *folder;
    wi_exchange x = {.leaves = leaves, .comes = comes};
    weir_status status = exchange_check(leaves, how, comes);
    if (status != WEIR_OK)
        return status;
    x.to = residence_of(comes);
    if (!x.to || wi_residency_is_here(comes))
        return weir_fail(WEIR_ERR_BUSY, "%s: %s is not suspended", call, comes->account.name);
    status = wi_residence_depart(leaves, call, how, out, &x.from, &folder);
    if (status != WEIR_OK)
        return status;
    /* without waiting, as the thread that has this record may be waiting for the record of `leaves` */
    if (!wi_residence_take_now(x.to, WEIR_SUSPENDED)) {
        wi_residence_set(x.from, WEIR_RESIDENT);
        return weir_fail(WEIR_ERR_BUSY, "%s: %s is not suspended, or is being resumed", call, comes->account.name);
    }
    bool gone = false;
    status = exchange_run(&x, folder, stream, &gone);
    free(x.events);
    wi_residence_departed(leaves, x.from, status != WEIR_OK, gone);
    wi_residence_set(x.from, gone ? WEIR_SUSPENDED : WEIR_RESIDENT);
    bool back = status == WEIR_OK && wi_residence_is_back(comes, x.to);
    wi_residence_set(x.to, back ? WEIR_RESIDENT : WEIR_SUSPENDED);
    if (status == WEIR_OK && out)
        wi_residence_tell(leaves, x.from, out);
    return status;
}
