/* grammar.c: a grammar is read before llama.cpp gets it. llama.cpp prints a grammar that it cannot parse, and expands
 * some grammars, or follows their left recursion, until the memory is exhausted. Such grammars are refused here, with a
 * message. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 17, MOST_NODES = 4096, MOST_NESTED = 64, MOST_ELEMENTS = 1 << 20, MOST_TIMES = 2000 };
enum { MOST_DEPTH = 1000, MOST_PATHS = 100000, UNBOUNDED = -1 };

/* A rule, or a group in parentheses, which llama.cpp makes a rule of. */
typedef struct node {
    const char *name;
    int name_bytes;
    int first, last; /* of its alternatives; -1: none, it is not defined */
    bool nullable;
    /* For the walk to the left. */
    int number, low;
    bool waits;
    uint64_t paths;
} node;

typedef struct alternative {
    int first, last; /* of its items; -1: none */
    int next;
} alternative;

typedef struct item {
    int node; /* -1: characters or a token */
    int64_t elements;
    int64_t times; /* at most; UNBOUNDED */
    bool optional;
    int next;
} item;

typedef struct reading {
    const wg_grammar_tokens *tokens;
    const char *text, *at;
    node *nodes;
    alternative *alternatives;
    item *items;
    int node_count, alternative_count, item_count;
    int64_t elements;
    int nested;
    const char *wrong; /* what is; NULL: nothing so far */
    int *waiting, waiting_count, numbers;
} reading;

static bool grammar_is(reading *it, const char *wrong)
{
    if (!it->wrong)
        it->wrong = wrong;
    return false;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static bool grammar_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

static void grammar_skip_space(reading *it, bool lines)
{
    while (*it->at == ' ' || *it->at == '\t' || *it->at == '#' || (lines && (*it->at == '\r' || *it->at == '\n'))) {
        if (*it->at == '#')
            it->at += strcspn(it->at, "\r\n");
        else
            it->at++;
    }
}

static bool read_hex(reading *it, int digits)
{
    for (int i = 0; i < digits; i++, it->at++)
        if (!*it->at || !strchr("0123456789abcdefABCDEF", *it->at))
            return grammar_is(it, "a hexadecimal digit is missing");
    return true;
}

static bool read_char(reading *it)
{
    unsigned char c = (unsigned char)*it->at;
    if (!c)
        return grammar_is(it, "the end of the text comes too early");
    if (c == '\\') {
        char escape = it->at[1];
        if (!escape || !strchr("xuUtrn\\\"[]-", escape))
            return grammar_is(it, "no such escape");
        it->at += 2;
        return escape == 'x'   ? read_hex(it, 2)
               : escape == 'u' ? read_hex(it, 4)
               : escape == 'U' ? read_hex(it, 8)
                               : true;
    }
    int length = c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    for (int i = 0; i < length && *it->at; i++)
        it->at++;
    return true;
}

static bool grammar_read_number(reading *it, int64_t *out)
{
    *out = 0;
    if (*it->at < '0' || *it->at > '9')
        return grammar_is(it, "a number is missing");
    for (; *it->at >= '0' && *it->at <= '9'; it->at++)
        *out = *out > INT32_MAX ? *out : *out * 10 + (*it->at - '0');
    return true;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

/* All three lists have as many places as the text has bytes, so that they need not grow. */
static int grammar_add_node(reading *it, const char *name, int bytes)
{
    if (it->node_count == MOST_NODES) {
        grammar_is(it, "there are more than 4096 rules and groups");
        return 0;
    }
    it->nodes[it->node_count] = (node){.name = name, .name_bytes = bytes, .first = -1, .last = -1, .number = -1};
    return it->node_count++;
}

static int rule_named(reading *it, const char *name, int bytes)
{
    for (int i = 0; i < it->node_count; i++)
        if (it->nodes[i].name_bytes == bytes && memcmp(it->nodes[i].name, name, (size_t)bytes) == 0)
            return i;
    return grammar_add_node(it, name, bytes);
}

static int add_alternative(reading *it, int owner)
{
    int place = it->alternative_count++;
    node *to = &it->nodes[owner];
    it->alternatives[place] = (alternative){-1, -1, -1};
    if (to->first < 0)
        to->first = place;
    else
        it->alternatives[to->last].next = place;
    to->last = place;
    return place;
}

static item *grammar_add_item(reading *it, int owner, int of, int64_t elements)
{
    int place = it->item_count++;
    alternative *to = &it->alternatives[owner];
    it->items[place] = (item){.node = of, .elements = elements, .times = 1, .next = -1};
    if (to->first < 0)
        to->first = place;
    else
        it->items[to->last].next = place;
    to->last = place;
    it->elements += elements;
    return &it->items[place];
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static bool read_alternatives(reading *it, int owner, bool nested);

static bool read_literal(reading *it, int owner)
{
    int64_t count = 0;
    for (it->at++; *it->at != '"'; count++)
        if (!read_char(it))
            return false;
    it->at++;
    grammar_add_item(it, owner, -1, count);
    return true;
}

static bool read_range(reading *it, int owner)
{
    int64_t count = 0;
    it->at += it->at[1] == '^' ? 2 : 1;
    for (; *it->at != ']'; count++) {
        if (!read_char(it))
            return false;
        if (it->at[0] == '-' && it->at[1] != ']') {
            it->at++;
            count++;
            if (!read_char(it))
                return false;
        }
    }
    it->at++;
    grammar_add_item(it, owner, -1, count);
    return true;
}

/* `<[12]>` and `<word>`, also with a `!` before it. */
static bool read_token(reading *it, int owner)
{
    it->at += *it->at == '!';
    const char *begin = it->at;
    if (*it->at != '<')
        return grammar_is(it, "a token in <> is missing");
    int64_t number = 0;
    if (it->at[1] == '[') {
        it->at += 2;
        if (!grammar_read_number(it, &number))
            return false;
        if (number >= it->tokens->count)
            return grammar_is(it, "no such token");
        if (it->at[0] != ']' || it->at[1] != '>')
            return grammar_is(it, "']>' is missing");
        it->at += 2;
    } else {
        it->at += strcspn(it->at, ">");
        if (*it->at != '>')
            return grammar_is(it, "'>' is missing");
        it->at++;
        if (!it->tokens->is_one(it->tokens->user, begin, (size_t)(it->at - begin)))
            return grammar_is(it, "this is not one token");
    }
    grammar_add_item(it, owner, -1, 1);
    return true;
}

static bool read_group(reading *it, int owner)
{
    if (it->nested == MOST_NESTED)
        return grammar_is(it, "parentheses are nested too deep");
    it->nested++;
    it->at++;
    grammar_skip_space(it, true);
    int group = grammar_add_node(it, "", -1);
    if (it->wrong || !read_alternatives(it, group, true))
        return false;
    if (*it->at != ')')
        return grammar_is(it, "')' is missing");
    it->at++;
    it->nested--;
    grammar_add_item(it, owner, group, 1);
    return true;
}

/* ---- repetitions ------------------------------------------------------------------------------------------------- */

static bool read_bounds(reading *it, bool lines, int64_t *least, int64_t *most)
{
    grammar_skip_space(it, lines);
    if (!grammar_read_number(it, least))
        return false;
    grammar_skip_space(it, lines);
    *most = *least;
    if (*it->at == ',') {
        it->at++;
        grammar_skip_space(it, lines);
        *most = UNBOUNDED;
        if (*it->at >= '0' && *it->at <= '9' && !grammar_read_number(it, most))
            return false;
        grammar_skip_space(it, lines);
    }
    if (*it->at != '}')
        return grammar_is(it, "'}' is missing");
    it->at++;
    if (*least > MOST_TIMES || *most > MOST_TIMES)
        return grammar_is(it, "more than 2000 repetitions");
    return *most == UNBOUNDED || *most >= *least || grammar_is(it, "fewer repetitions at most than at least");
}

/* Adds a repetition to an item. llama.cpp copies the item for every repetition, so the copies are counted. */
static bool grammar_repeat(reading *it, item *what, int64_t least, int64_t most)
{
    int64_t times = most != UNBOUNDED ? most : least;
    what->optional = what->optional || least == 0;
    what->elements *= times > 1 ? times : 1;
    it->elements += what->elements;
    if (most == UNBOUNDED || what->times == UNBOUNDED)
        what->times = UNBOUNDED;
    else
        what->times *= most > 0 ? most : 1;
    if (what->elements > MOST_ELEMENTS || what->times > MOST_ELEMENTS)
        return grammar_is(it, "the repetitions make too much of it");
    return true;
}

static bool read_repetition(reading *it, int owner, bool lines)
{
    int64_t least = *it->at == '+', most = *it->at == '?' ? 1 : UNBOUNDED;
    int last = it->alternatives[owner].last;
    if (last < 0 || it->items[last].elements == 0)
        return grammar_is(it, "there is nothing to repeat");
    if (*it->at++ == '{' && !read_bounds(it, lines, &least, &most))
        return false;
    return grammar_repeat(it, &it->items[last], least, most);
}

/* ---- sequences and rules ----------------------------------------------------------------------------------------- */

/* One item, or the repetition of the one before; answers whether there was one. */
static bool read_item(reading *it, int owner, bool nested)
{
    char c = *it->at;
    if (c == '"')
        read_literal(it, owner);
    else if (c == '[')
        read_range(it, owner);
    else if (c == '<' || c == '!')
        read_token(it, owner);
    else if (c == '(')
        read_group(it, owner);
    else if (c == '*' || c == '+' || c == '?' || c == '{')
        read_repetition(it, owner, nested);
    else if (c == '.') {
        it->at++;
        grammar_add_item(it, owner, -1, 1);
    } else if (grammar_is_word(c)) {
        const char *name = it->at;
        while (grammar_is_word(*it->at))
            it->at++;
        grammar_add_item(it, owner, rule_named(it, name, (int)(it->at - name)), 1);
    } else {
        return false;
    }
    grammar_skip_space(it, nested);
    return true;
}

static bool read_alternatives(reading *it, int owner, bool nested)
{
    for (;;) {
        int here = add_alternative(it, owner);
        while (!it->wrong && read_item(it, here, nested))
            if (it->elements > MOST_ELEMENTS)
                return grammar_is(it, "the grammar is too large with its repetitions");
        if (it->wrong || *it->at != '|')
            return !it->wrong;
        it->at++;
        grammar_skip_space(it, true);
    }
}

static bool read_rule(reading *it)
{
    const char *name = it->at;
    while (grammar_is_word(*it->at))
        it->at++;
    if (it->at == name)
        return grammar_is(it, "the name of a rule is missing");
    int rule = rule_named(it, name, (int)(it->at - name));
    grammar_skip_space(it, false);
    if (strncmp(it->at, "::=", 3) != 0)
        return grammar_is(it, "'::=' is missing");
    it->at += 3;
    grammar_skip_space(it, true);
    it->nodes[rule].first = it->nodes[rule].last = -1;
    if (it->wrong || !read_alternatives(it, rule, false))
        return false;
    if (*it->at && *it->at != '\r' && *it->at != '\n')
        return grammar_is(it, "the end of the line is missing");
    grammar_skip_space(it, true);
    return true;
}

static bool read_rules(reading *it)
{
    grammar_skip_space(it, true);
    while (*it->at)
        if (!read_rule(it))
            return false;
    return true;
}

/* ---- what is to the left ----------------------------------------------------------------------------------------- */

static bool item_nullable(const reading *it, const item *one)
{
    return one->optional || one->elements == 0 || (one->node >= 0 && it->nodes[one->node].nullable);
}

static bool alternative_nullable(const reading *it, const alternative *one)
{
    for (int i = one->first; i >= 0; i = it->items[i].next)
        if (!item_nullable(it, &it->items[i]))
            return false;
    return true;
}

static void find_nullable(reading *it)
{
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < it->node_count; i++) {
            node *one = &it->nodes[i];
            for (int a = one->first; a >= 0 && !one->nullable; a = it->alternatives[a].next)
                more = (one->nullable = alternative_nullable(it, &it->alternatives[a])) || more;
        }
    }
}

static bool grammar_walk(reading *it, int place, int depth);

/* One step to the left, from a node to one that its text may begin with. */
static bool walk_to(reading *it, int from, int to, int depth)
{
    if (it->nodes[to].number < 0) {
        if (!grammar_walk(it, to, depth + 1))
            return false;
        if (it->nodes[to].low < it->nodes[from].low)
            it->nodes[from].low = it->nodes[to].low;
    } else if (it->nodes[to].waits && it->nodes[to].number < it->nodes[from].low) {
        it->nodes[from].low = it->nodes[to].number;
    }
    return true;
}

typedef bool (*left_fn)(reading *it, int from, const item *step, bool last, int depth);

/* Calls `what` for every item with which a node's text may begin. */
static bool each_left(reading *it, int from, left_fn what, int depth)
{
    for (int a = it->nodes[from].first; a >= 0; a = it->alternatives[a].next)
        for (int i = it->alternatives[a].first; i >= 0; i = it->items[i].next) {
            const item *one = &it->items[i];
            if (one->node >= 0 && !what(it, from, one, one->next < 0 && one->times == 1, depth))
                return false;
            if (!item_nullable(it, one))
                break;
        }
    return true;
}

static bool step_left(reading *it, int from, const item *step, bool last, int depth)
{
    (void)last;
    return walk_to(it, from, step->node, depth);
}

/* Counts the leftmost paths that leave the node's cycle. A path that stays in the cycle with items still to be read
 * behind it is a left recursion: llama.cpp's stack of such items grows without end. */
static bool count_left(reading *it, int from, const item *step, bool last, int depth)
{
    node *to = &it->nodes[step->node];
    (void)depth;
    if (to->waits) {
        it->at = it->nodes[from].name_bytes > 0 ? it->nodes[from].name : it->at;
        return last || grammar_is(it, "a left recursion: a rule begins with itself");
    }
    uint64_t times = to->nullable && step->times > 1 ? (uint64_t)step->times : 1;
    it->nodes[from].paths += to->paths * times;
    return it->nodes[from].paths <= MOST_PATHS || grammar_is(it, "its beginning has too many ways to be read");
}

/* Finds cycles of nodes by Tarjan's algorithm: when a node is left that reaches no earlier node, the waiting nodes from
 * this node on are one cycle. */
static bool grammar_walk(reading *it, int place, int depth)
{
    node *here = &it->nodes[place];
    if (depth > MOST_DEPTH)
        return grammar_is(it, "the rules follow one another too deep");
    here->number = here->low = it->numbers++;
    here->waits = true;
    here->paths = 1;
    it->waiting[it->waiting_count++] = place;
    if (!each_left(it, place, step_left, depth))
        return false;
    if (here->low != here->number)
        return true;
    int first = it->waiting_count - 1;
    while (it->waiting[first] != place)
        first--;
    uint64_t paths = 0;
    for (int i = first; i < it->waiting_count; i++) {
        if (!each_left(it, it->waiting[i], count_left, depth))
            return false;
        paths += it->nodes[it->waiting[i]].paths;
    }
    for (int i = first; i < it->waiting_count; i++) {
        it->nodes[it->waiting[i]].paths = paths;
        it->nodes[it->waiting[i]].waits = false;
    }
    it->waiting_count = first;
    return true;
}

static bool check_rules(reading *it)
{
    bool has_root = false;
    for (int i = 0; i < it->node_count; i++) {
        const node *one = &it->nodes[i];
        has_root = has_root || (one->name_bytes == 4 && memcmp(one->name, "root", 4) == 0);
        if (one->first < 0) {
            it->at = one->name;
            return grammar_is(it, "a rule of this name is missing");
        }
    }
    if (!has_root)
        return grammar_is(it, "the rule 'root' is missing");
    find_nullable(it);
    for (int i = 0; i < it->node_count; i++)
        if (it->nodes[i].number < 0 && !grammar_walk(it, i, 0))
            return false;
    return true;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static weir_status grammar_explain(const reading *it)
{
    size_t line = 1;
    for (const char *at = it->text; at < it->at; at++)
        line += *at == '\n';
    return weir_fail(WEIR_ERR_INVALID, "the setting 'grammar', line %zu: %s: '%.*s'", line, it->wrong,
                     (int)strcspn(it->at, "\n") < 40 ? (int)strcspn(it->at, "\n") : 40, it->at);
}

weir_status wg_grammar_check(const char *grammar, const wg_grammar_tokens *tokens)
{
    size_t bytes = strlen(grammar) + 1;
    if (bytes > MOST_BYTES)
        return weir_fail(WEIR_ERR_INVALID, "the setting 'grammar' has %zu bytes, and at most %d are taken", bytes - 1,
                         MOST_BYTES - 1);
    reading it = {.tokens = tokens, .text = grammar, .at = grammar};
    it.nodes = calloc(MOST_NODES, sizeof *it.nodes);
    it.waiting = calloc(MOST_NODES, sizeof *it.waiting);
    it.alternatives = calloc(bytes + 1, sizeof *it.alternatives);
    it.items = calloc(bytes + 1, sizeof *it.items);
    weir_status status = WEIR_OK;
    if (!it.nodes || !it.waiting || !it.alternatives || !it.items)
        status = weir_fail(WEIR_ERR_SYSTEM, "no memory to read a grammar of %zu bytes", bytes);
    else if (!read_rules(&it) || !check_rules(&it))
        status = grammar_explain(&it);
    free(it.nodes);
    free(it.waiting);
    free(it.alternatives);
    free(it.items);
    return status;
}
