/* Records of requests, and the queue of waiting requests.
 *
 * Each model's waiting requests are in a treap with sizes: by priority, then by ticket. So the first one, and how many
 * are before another, are found in logarithmic time, and the models are few. A heap has the deadlines. A table finds a
 * record by its ticket; tickets are consecutive, so that the lowest bits are a perfect hash until records grow old. */
#include "pool/table.h"

/* Records ---------------------------------------------------------------------------------------------------------- */

static uint32_t bucket(const wp_admission *it, wp_ticket ticket)
{
    return (uint32_t)ticket & (it->ticket_room - 1);
}

static void enter_ticket(wp_admission *it, uint32_t job)
{
    uint32_t at = bucket(it, it->jobs[job].ticket);
    while (it->tickets[at])
        at = (at + 1) & (it->ticket_room - 1);
    it->tickets[at] = job;
}

uint32_t wp_job_find(const wp_admission *it, wp_ticket ticket)
{
    if (it->ticket_room == 0 || ticket == 0)
        return 0;
    uint32_t at = bucket(it, ticket);
    while (it->tickets[at] && it->jobs[it->tickets[at]].ticket != ticket)
        at = (at + 1) & (it->ticket_room - 1);
    return it->tickets[at];
}

/* Removes a ticket. Later entries of the probe run move up, unless their home bucket lies after the hole. */
static void remove_ticket(wp_admission *it, uint32_t job)
{
    uint32_t mask = it->ticket_room - 1, hole = bucket(it, it->jobs[job].ticket);
    while (it->tickets[hole] != job)
        hole = (hole + 1) & mask;
    for (uint32_t at = (hole + 1) & mask; it->tickets[at]; at = (at + 1) & mask) {
        uint32_t home = bucket(it, it->jobs[it->tickets[at]].ticket);
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        it->tickets[hole] = it->tickets[at];
        hole = at;
    }
    it->tickets[hole] = 0;
}

/* Makes room for twice as many records. */
static bool grow_jobs(wp_admission *it)
{
    uint32_t room = it->job_room ? 2 * it->job_room : 64;
    wp_job *jobs = realloc(it->jobs, (size_t)(room + 1) * sizeof *jobs);
    if (jobs)
        it->jobs = jobs;
    uint32_t *heap = realloc(it->heap, (size_t)(room + 1) * sizeof *heap);
    if (heap)
        it->heap = heap;
    uint32_t *tickets = calloc((size_t)2 * room, sizeof *tickets);
    if (!jobs || !heap || !tickets) {
        free(tickets);
        return false;
    }
    memset(jobs + it->job_room + (it->job_room > 0), 0,
           (size_t)(room - it->job_room + (it->job_room == 0)) * sizeof *jobs);
    free(it->tickets);
    it->tickets = tickets;
    it->ticket_room = 2 * room;
    for (uint32_t i = 1; i <= it->job_room; i++)
        if (jobs[i].ticket)
            enter_ticket(it, i);
    for (uint32_t i = room; i > it->job_room; i--) {
        jobs[i].left = it->free_job;
        it->free_job = i;
    }
    it->job_room = room;
    return true;
}

/* Actions that may come without a further request: an action for each waiting request, and an action for each model. */
bool wp_actions_reserve(wp_admission *it, uint32_t rows)
{
    uint32_t wanted = it->job_actions + it->waiting + 1 + rows;
    if (wanted <= it->action_room)
        return true;
    uint32_t room = 2 * wanted;
    wp_action *actions = malloc((size_t)room * sizeof *actions);
    if (!actions)
        return false;
    for (uint32_t i = 0; i < it->action_count; i++)
        actions[i] = it->actions[(it->first_action + i) % it->action_room];
    free(it->actions);
    it->actions = actions;
    it->action_room = room;
    it->first_action = 0;
    return true;
}

bool wp_queue_reserve(wp_admission *it)
{
    return (it->free_job || grow_jobs(it)) && wp_actions_reserve(it, it->count);
}

uint32_t wp_job_make(wp_admission *it, const wp_request *request)
{
    uint32_t job = it->free_job;
    it->free_job = it->jobs[job].left;
    it->job_count++;
    uint64_t longest = wp_sum(it->now, it->limits.longest);
    it->jobs[job] = (wp_job){.ticket = it->next_ticket++,
                             .model = request->model,
                             .priority = request->priority,
                             .bytes = request->bytes,
                             .arrived = it->now,
                             .deadline = wi_min(request->deadline, longest)};
    enter_ticket(it, job);
    return job;
}

void wp_job_forget(wp_admission *it, uint32_t job)
{
    wi_assert(it->jobs[job].heap == 0 && it->jobs[job].size == 0);
    remove_ticket(it, job);
    it->jobs[job] = (wp_job){.left = it->free_job};
    it->free_job = job;
    it->job_count--;
}

/* Order of a model's ----------------------------------------------------------------------------------------------- */

static bool queue_goes_before(const wp_job *a, int64_t priority, wp_ticket ticket)
{
    return a->priority != priority ? a->priority > priority : a->ticket < ticket;
}

/* A parent has a higher one than its children. */
static uint64_t tree_rank(const wp_job *job)
{
    uint64_t x = job->ticket * UINT64_C(0x9e3779b97f4a7c15);
    return (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
}

static uint32_t queue_size_of(const wp_admission *it, uint32_t tree)
{
    return tree ? it->jobs[tree].size : 0;
}

static void count_again(wp_admission *it, uint32_t tree)
{
    wp_job *job = &it->jobs[tree];
    job->size = 1 + queue_size_of(it, job->left) + queue_size_of(it, job->right);
}

/* Cuts a tree into what goes before the request and what follows. */
static void queue_cut(wp_admission *it, uint32_t tree, const wp_job *at, uint32_t *before, uint32_t *after)
{
    if (tree == 0) {
        *before = *after = 0;
        return;
    }
    wp_job *job = &it->jobs[tree];
    if (queue_goes_before(job, at->priority, at->ticket)) {
        queue_cut(it, job->right, at, &job->right, after);
        *before = tree;
    } else {
        queue_cut(it, job->left, at, before, &job->left);
        *after = tree;
    }
    count_again(it, tree);
}

static uint32_t queue_join(wp_admission *it, uint32_t before, uint32_t after)
{
    if (before == 0 || after == 0)
        return before + after;
    uint32_t top = before;
    if (tree_rank(&it->jobs[before]) > tree_rank(&it->jobs[after])) {
        it->jobs[before].right = queue_join(it, it->jobs[before].right, after);
    } else {
        it->jobs[after].left = queue_join(it, before, it->jobs[after].left);
        top = after;
    }
    count_again(it, top);
    return top;
}

static uint32_t queue_enter(wp_admission *it, uint32_t tree, uint32_t new)
{
    wp_job *job = &it->jobs[new];
    if (tree == 0 || tree_rank(job) > tree_rank(&it->jobs[tree])) {
        queue_cut(it, tree, job, &job->left, &job->right);
        count_again(it, new);
        return new;
    }
    wp_job *top = &it->jobs[tree];
    if (queue_goes_before(top, job->priority, job->ticket))
        top->right = queue_enter(it, top->right, new);
    else
        top->left = queue_enter(it, top->left, new);
    count_again(it, tree);
    return tree;
}

static uint32_t queue_without(wp_admission *it, uint32_t tree, uint32_t old)
{
    if (tree == old)
        return queue_join(it, it->jobs[old].left, it->jobs[old].right);
    wp_job *top = &it->jobs[tree];
    if (queue_goes_before(top, it->jobs[old].priority, it->jobs[old].ticket))
        top->right = queue_without(it, top->right, old);
    else
        top->left = queue_without(it, top->left, old);
    count_again(it, tree);
    return tree;
}

static uint32_t leftmost(const wp_admission *it, uint32_t tree)
{
    while (tree && it->jobs[tree].left)
        tree = it->jobs[tree].left;
    return tree;
}

/* Deadlines -------------------------------------------------------------------------------------------------------- */

static bool earlier(const wp_admission *it, uint32_t a, uint32_t b)
{
    const wp_job *x = &it->jobs[a], *y = &it->jobs[b];
    return x->deadline != y->deadline ? x->deadline < y->deadline : x->ticket < y->ticket;
}

static void queue_put(wp_admission *it, uint32_t index, uint32_t job)
{
    it->heap[index] = job;
    it->jobs[job].heap = index;
}

static void rise(wp_admission *it, uint32_t index, uint32_t job)
{
    for (; index > 1 && earlier(it, job, it->heap[index / 2]); index /= 2)
        queue_put(it, index, it->heap[index / 2]);
    queue_put(it, index, job);
}

static void queue_sink(wp_admission *it, uint32_t index, uint32_t job)
{
    for (uint32_t child = 2 * index; child <= it->waiting; child = 2 * index) {
        if (child < it->waiting && earlier(it, it->heap[child + 1], it->heap[child]))
            child++;
        if (!earlier(it, it->heap[child], job))
            break;
        queue_put(it, index, it->heap[child]);
        index = child;
    }
    queue_put(it, index, job);
}

void wp_job_wait(wp_admission *it, uint32_t job)
{
    wp_row *row = &it->rows[it->jobs[job].model];
    row->tree = queue_enter(it, row->tree, job);
    row->first = leftmost(it, row->tree);
    it->waiting++;
    it->waiting_bytes += it->jobs[job].bytes;
    rise(it, it->waiting, job);
}

void wp_job_leave(wp_admission *it, uint32_t job)
{
    wp_row *row = &it->rows[it->jobs[job].model];
    row->tree = queue_without(it, row->tree, job);
    row->first = leftmost(it, row->tree);
    uint32_t index = it->jobs[job].heap, last = it->heap[it->waiting];
    it->waiting--;
    it->waiting_bytes -= it->jobs[job].bytes;
    if (last != job) {
        queue_sink(it, index, last);
        rise(it, it->jobs[last].heap, last);
    }
    it->jobs[job].left = it->jobs[job].right = it->jobs[job].size = it->jobs[job].heap = 0;
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

uint32_t wp_job_before(const wp_admission *it, const wp_row *row, int64_t rank, wp_ticket ticket)
{
    uint32_t before = 0;
    for (uint32_t tree = row->tree; tree;) {
        const wp_job *job = &it->jobs[tree];
        if (queue_goes_before(job, rank - row->spec.priority, ticket)) {
            before += 1 + queue_size_of(it, job->left);
            tree = job->right;
        } else {
            tree = job->left;
        }
    }
    return before;
}

uint32_t wp_job_position(const wp_admission *it, uint32_t job)
{
    const wp_job *one = &it->jobs[job];
    int64_t rank = wp_rank(&it->rows[one->model], one);
    uint32_t before = 0;
    for (uint32_t i = 0; i < it->count; i++)
        before += wp_job_before(it, &it->rows[i], rank, one->ticket);
    return before + 1;
}

uint32_t wp_job_tree_check(const wp_admission *it, uint32_t tree, wp_model model)
{
    if (tree == 0)
        return 0;
    const wp_job *job = &it->jobs[tree];
    uint32_t left = wp_job_tree_check(it, job->left, model), right = wp_job_tree_check(it, job->right, model);
    bool whole = left != UINT32_MAX && right != UINT32_MAX && job->size == left + right + 1 && job->model == model &&
                 job->ticket != 0 && !job->granted && job->heap >= 1 && job->heap <= it->waiting &&
                 it->heap[job->heap] == tree && (job->heap == 1 || !earlier(it, tree, it->heap[job->heap / 2])) &&
                 (!job->left || queue_goes_before(&it->jobs[job->left], job->priority, job->ticket)) &&
                 (!job->right || queue_goes_before(job, it->jobs[job->right].priority, it->jobs[job->right].ticket));
    return whole ? job->size : UINT32_MAX;
}

/* Actions ---------------------------------------------------------------------------------------------------------- */

void wp_push(wp_admission *it, const wp_action *action, bool of_job)
{
    wi_assert(it->action_count < it->action_room);
    it->actions[(it->first_action + it->action_count) % it->action_room] = *action;
    it->action_count++;
    it->job_actions += of_job;
}
