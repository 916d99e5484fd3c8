/* picture.c: the arena as a picture: time across, address up, a rectangle for each tensor. The picture is a
 * self-contained SVG file; where scripts may run, a script names the tensor under the pointer. */
#include "plan.h"
#include <weir/plan.h>

#include "cli/text.h"
#include "cli/plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    "<style>\n"
    "svg{--page:#f5f6f8;--card:#fff;--ink:#1c2330;--soft:#5b6576;--line:#dfe3ea;--grid:#edf0f4;--bound:#c0392b;"
    "--c0:#3f78c3;--c1:#de8433;--c2:#3f9c78;--c3:#ab62ab;--c4:#c7544b;--c5:#96852f;--c6:#4aa6be;--c7:#8376d8;"
    "font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;color-scheme:light dark}\n"
    "@media (prefers-color-scheme:dark){svg{--page:#12151b;--card:#1b2029;--ink:#e7eaf0;--soft:#98a2b3;--line:#2d3440;"
    "--grid:#252b36;--bound:#ff7b6b;--c0:#5b93dc;--c1:#e39a54;--c2:#55b48f;--c3:#bf7fbf;--c4:#d87068;--c5:#b3a148;"
    "--c6:#63bbd2;--c7:#9d92e8}}\n"
    ".page{fill:var(--page)}.card{fill:var(--card);stroke:var(--line)}text{fill:var(--soft)}"
    ".strong{fill:var(--ink);font-weight:600}.title{font-size:22px;fill:var(--ink);font-weight:650}.end{text-anchor:"
    "end}"
    ".mid{text-anchor:middle}.grid{stroke:var(--grid)}.bound{stroke:var(--bound);stroke-dasharray:6 4;fill:none}"
    "text.bound{fill:var(--bound)}text.halo{paint-order:stroke;stroke:var(--card);stroke-width:4px;"
    "stroke-linejoin:round;stroke-dasharray:none}.live{fill:var(--soft);fill-opacity:.28;stroke:var(--soft);stroke-"
    "width:1}"
    ".t{stroke:var(--card);stroke-width:.7}.t.thin{stroke:none}.t:hover{stroke:var(--ink);stroke-width:2;"
    "fill-opacity:1}.label{fill:#fff;font-size:11px;pointer-events:none}.t{fill-opacity:.9}"
    ".n{font-variant-numeric:tabular-nums}\n"
    "</style>\n";

/* A browser shows the title of a rectangle after a while; this shows it at once, on a line of its own. */
static const char script[] =
    "<script><![CDATA[\n"
    "const line = document.getElementById('told'), empty = line.textContent;\n"
    "document.documentElement.addEventListener('pointermove', event => {\n"
    "  const title = event.target.classList.contains('t') ? event.target.querySelector('title') : null;\n"
    "  line.textContent = title ? title.textContent.replaceAll('\\n', ' · ') : empty;\n"
    "});\n"
    "]]></script>\n";

enum {
    WIDTH = 1280,
    HEIGHT = 800,
    LEFT = 96,
    RIGHT = 1252,
    TOP = 112,
    BOTTOM = 612,   /* of the arena */
    LIVE_TOP = 642, /* of the curve of live bytes, below the arena */
    LIVE_BOTTOM = 722,
    COLOURS = 8 /* kinds of tensors with a colour of their own */
};

typedef struct picture {
    FILE *file;
    const plan_answer *answer;
    const weir_buffers *buffers;
    plan_storage *storages;
    size_t count;
    uint64_t steps, arena;
    uint64_t peak, peak_step; /* the most that is live, and when that begins */
    size_t unseen;            /* storages that are too small to be drawn */
} picture;

static double x_of(const picture *p, uint64_t step)
{
    return LEFT + (RIGHT - LEFT) * ((double)step / (double)p->steps);
}

static double y_of(const picture *p, uint64_t address)
{
    double most = p->arena ? (double)p->arena : 1;
    return BOTTOM - (BOTTOM - TOP) * ((double)address / most);
}

/* What is live when ------------------------------------------------------------------------------------------------ */

typedef struct change {
    uint64_t step;
    uint64_t bytes;
    bool ends;
} change;

/* Ends come first: what ends at a step is not live in it. */
static int by_step(const void *a, const void *b)
{
    const change *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (int)y->ends - (int)x->ends;
}

static change *changes(const picture *p)
{
    change *list = text_zeroed(2 * p->count, sizeof *list);
    for (size_t i = 0; i < p->count; i++) {
        const plan_storage *s = &p->storages[i];
        list[2 * i] = (change){s->begin, s->length, false};
        list[2 * i + 1] = (change){s->end, s->length, true};
    }
    qsort(list, 2 * p->count, sizeof *list, by_step);
    return list;
}

/* Calls `each` for each span of steps with the same live bytes. */
static void picture_sweep(const picture *p, void (*each)(uint64_t from, uint64_t to, uint64_t live, void *user),
                          void *user)
{
    change *list = changes(p);
    uint64_t live = 0;
    for (size_t i = 0; i < 2 * p->count; i++) {
        live += list[i].ends ? 0 - list[i].bytes : list[i].bytes;
        uint64_t next = i + 1 < 2 * p->count ? list[i + 1].step : p->steps;
        if (next > list[i].step)
            each(list[i].step, next, live, user);
    }
    free(list);
}

static void take_peak(uint64_t from, uint64_t to, uint64_t live, void *user)
{
    picture *p = user;
    (void)to;
    if (live > p->peak) {
        p->peak = live;
        p->peak_step = from;
    }
}

/* The curve -------------------------------------------------------------------------------------------------------- */

enum { COLUMNS = RIGHT - LEFT };

typedef struct curve {
    const picture *p;
    uint64_t most[COLUMNS]; /* in each column of the picture */
} curve;

static void take_columns(uint64_t from, uint64_t to, uint64_t live, void *user)
{
    curve *c = user;
    double each = (double)COLUMNS / (double)c->p->steps;
    size_t first = (size_t)((double)from * each), last = (size_t)((double)to * each);
    for (size_t i = first; i < COLUMNS && (i < last || i == first); i++)
        c->most[i] = live > c->most[i] ? live : c->most[i];
}

static double height(const picture *p, uint64_t live)
{
    double room = LIVE_BOTTOM - LIVE_TOP;
    return LIVE_BOTTOM - (p->peak ? room * (double)live / (double)p->peak : 0);
}

static void put_live(const picture *p)
{
    curve *c = text_zeroed(1, sizeof *c);
    c->p = p;
    picture_sweep(p, take_columns, c);
    fprintf(p->file, "<path class=\"live\" d=\"M%d %d", LEFT, LIVE_BOTTOM);
    for (int i = 0; i < COLUMNS; i++)
        if (i == 0 || c->most[i] != c->most[i - 1])
            fprintf(p->file, "H%dV%.1f", LEFT + i, height(p, c->most[i]));
    fprintf(p->file, "H%dV%dZ\"/>\n", RIGHT, LIVE_BOTTOM);
    free(c);
}

/* Colours ---------------------------------------------------------------------------------------------------------- */

enum { PRODUCT, MOVE, EACH, NORM, REDUCE, REST, WINDOW, INPUT }; /* in the order of the colours in the style */

static const char *const of_models[COLOURS] = {
    [INPUT] = "input",        [WINDOW] = "convolution or pool", [PRODUCT] = "product or attention",
    [NORM] = "normalisation", [EACH] = "element by element",    [MOVE] = "moved or put together",
    [REDUCE] = "reduction",   [REST] = "other operators",
};
static const char *const of_lists[COLOURS] = {"up to 1 % of the arena", "up to 5 %", "up to 20 %", "more"};

/* By a part of the operator's name; the first match counts. */
static const struct {
    const char *part;
    unsigned colour;
} operators[] = {
    {"input", INPUT},    {"Conv", WINDOW},       {"Pool", WINDOW},  {"MatMul", PRODUCT}, {"Gemm", PRODUCT},
    {"Einsum", PRODUCT}, {"Attention", PRODUCT}, {"LSTM", PRODUCT}, {"GRU", PRODUCT},    {"Norm", NORM},
    {"oftmax", NORM},    {"LRN", NORM},          {"Arg", REDUCE},   {"Reduce", REDUCE},  {"Transpose", MOVE},
    {"Concat", MOVE},    {"Slice", MOVE},        {"Split", MOVE},   {"Gather", MOVE},    {"Scatter", MOVE},
    {"Expand", MOVE},    {"Tile", MOVE},         {"Pad", MOVE},     {"Resize", MOVE},    {"Upsample", MOVE},
    {"Space", MOVE},     {"Reshape", MOVE},      {"queeze", MOVE},  {"Flatten", MOVE},   {"Add", EACH},
    {"Sub", EACH},       {"Mul", EACH},          {"Div", EACH},     {"Pow", EACH},       {"Sqrt", EACH},
    {"elu", EACH},       {"ELU", EACH},          {"Relu", EACH},    {"anh", EACH},       {"igmoid", EACH},
    {"Erf", EACH},       {"Clip", EACH},         {"Cast", EACH},    {"Where", EACH},     {"Exp", EACH},
    {"Log", EACH},       {"Equal", EACH},        {"Less", EACH},    {"Greater", EACH},   {"Not", EACH},
    {"wish", EACH},      {"Max", EACH},          {"Min", EACH},     {"Neg", EACH},       {"Abs", EACH},
    {"And", EACH},
};

static unsigned colour_of_operator(const char *name)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (strstr(name, operators[i].part))
            return operators[i].colour;
    return REST;
}

static unsigned colour_of_class(const char *name)
{
    for (unsigned i = 0; i < WEIR_CLASS_COUNT; i++)
        if (strcmp(name, weir_name_of(WEIR_NAMES_CLASS, i)) == 0)
            return i;
    return REST;
}

static unsigned colour_of_size(const picture *p, uint64_t length)
{
    double part = p->arena ? (double)length / (double)p->arena : 0;
    return part <= .01 ? 0 : part <= .05 ? 1 : part <= .2 ? 2 : 3;
}

/* The operators that make the tensors are known, for all or for none. */
static bool by_maker(const plan_source *from)
{
    return from->origins && (from->kind == PLAN_MODEL || from->kind == PLAN_TRACE);
}

static unsigned colour_of(const picture *p, size_t i)
{
    const plan_source *from = p->answer->source;
    const char *maker = by_maker(from) ? from->origins[p->storages[i].buffer].maker : NULL;
    if (!maker)
        return colour_of_size(p, p->storages[i].length);
    return from->kind == PLAN_MODEL ? colour_of_operator(maker) : colour_of_class(maker);
}

static const char *colour_name(const picture *p, unsigned colour)
{
    const plan_source *from = p->answer->source;
    const char *name = !by_maker(from)             ? of_lists[colour]
                       : from->kind == PLAN_MODEL  ? of_models[colour]
                       : colour < WEIR_CLASS_COUNT ? weir_name_of(WEIR_NAMES_CLASS, colour)
                                                   : NULL;
    return name ? name : "other";
}

/* Frame ------------------------------------------------------------------------------------------------------------ */

static void picture_put_text(const picture *p, double x, double y, const char *class_name, const char *text)
{
    fprintf(p->file, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class_name);
    text_html(p->file, text);
    fputs("</text>\n", p->file);
}

static void put_line(const picture *p, double x1, double y1, double x2, double y2, const char *class_name)
{
    fprintf(p->file, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", class_name, x1, y1, x2, y2);
}

static void put_heading(const picture *p)
{
    const weir_plan_details *sum = &p->answer->summary;
    char arena[24], more[24], unshared[24];
    char *above = sum->proven ? text_copy(": no plan is smaller")
                              : text_print(", %s above the lower bound",
                                           weir_size_format(sum->arena - sum->lower_bound, more, sizeof more));
    char *text = text_print("%s%s. Unshared %s, %u buffers in %" PRIu64 " steps",
                            weir_size_format(sum->arena, arena, sizeof arena), above,
                            weir_size_format(sum->unshared, unshared, sizeof unshared), sum->buffers, sum->steps);
    free(above);
    picture_put_text(p, 32, 44, "title", plan_file_name(p->answer->args));
    picture_put_text(p, 32, 68, "n", text);
    free(text);
    fprintf(p->file, "<text id=\"told\" x=\"32\" y=\"98\" class=\"strong n\">%s</text>\n",
            p->count ? "Point at a rectangle to see what it is" : "Nothing here takes memory");
}

/* A power of two of which about five make the arena. */
static uint64_t tick(uint64_t most)
{
    uint64_t step = 1;
    while (step < most / 5 && step < UINT64_C(1) << 62)
        step *= 2;
    return step;
}

static void put_addresses(const picture *p)
{
    char text[24];
    uint64_t step = tick(p->arena);
    for (uint64_t at = 0; at <= p->arena; at += step) {
        double y = y_of(p, at);
        if (at > 0)
            put_line(p, LEFT, y, RIGHT, y, "grid");
        /* the arena's own end is labelled too, and must not meet the last tick */
        if (at == 0 || (y > TOP + 14 && at != p->arena))
            picture_put_text(p, LEFT - 10, y + 4, "end n", at ? weir_size_format(at, text, sizeof text) : "0");
    }
    picture_put_text(p, LEFT - 10, TOP + 4, "strong end n", weir_size_format(p->arena, text, sizeof text));
}

/* The smallest of 1, 2, 5, 10, 20 … of which no more than ten make all steps. */
static uint64_t round_steps(uint64_t steps)
{
    for (uint64_t ten = 1; ten <= UINT64_MAX / 100; ten *= 10)
        for (uint64_t first = 1; first <= 5; first += first < 2 ? 1 : 3)
            if (steps / (first * ten) <= 10)
                return first * ten;
    return steps;
}

static void put_steps(const picture *p)
{
    uint64_t step = round_steps(p->steps);
    for (uint64_t at = 0; at <= p->steps; at += step) {
        char *text = text_print("%" PRIu64, at);
        picture_put_text(p, x_of(p, at), LIVE_BOTTOM + 18, "mid n", text);
        put_line(p, x_of(p, at), LIVE_BOTTOM, x_of(p, at), LIVE_BOTTOM + 4, "grid");
        free(text);
    }
    picture_put_text(p, LEFT - 10, LIVE_BOTTOM + 18, "end", "step");
}

static void picture_put_frame(const picture *p)
{
    fprintf(p->file,
            "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n<rect class=\"card\" x=\"%d\" y=\"%d\" width=\"%d\" "
            "height=\"%d\"/>\n<rect class=\"card\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
            WIDTH, HEIGHT, LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP, LEFT, LIVE_TOP, RIGHT - LEFT, LIVE_BOTTOM - LIVE_TOP);
    put_heading(p);
    put_addresses(p);
    put_steps(p);
    picture_put_text(p, LEFT - 10, LIVE_TOP + 12, "end", "live");
}

/* Tensors ---------------------------------------------------------------------------------------------------------- */

static void picture_put_title(const picture *p, const plan_storage *s)
{
    weir_buffer b = WEIR_INIT(weir_buffer);
    char size[24];
    if (weir_buffer_info(p->buffers, s->buffer, &b) != WEIR_OK)
        return;
    const plan_origin *origin = p->answer->source->origins ? &p->answer->source->origins[s->buffer] : NULL;
    fputs("<title>", p->file);
    text_html(p->file, b.name);
    if (origin && origin->maker) {
        fputs("\n", p->file);
        text_html(p->file, origin->maker);
    }
    if (origin && origin->shape)
        fprintf(p->file, "\n%s", origin->shape);
    fprintf(p->file, "\n%s at %" PRIu64 "\nsteps %" PRIu64 " to %" PRIu64, weir_size_format(b.bytes, size, sizeof size),
            s->offset, s->begin, s->end - 1);
    if (s->views > 0)
        fprintf(p->file, "\n%u %s", s->views, s->views == 1 ? "view" : "views");
    if (s->over != WEIR_NO_BUFFER)
        fputs("\nwritten over its input", p->file);
    fputs("</title>", p->file);
}

/* A text inside its rectangle, cut to fit; none if only a few characters would be left. */
static void put_label(const picture *p, const char *text, double x, double y, double width)
{
    enum { FEWEST = 5 };
    size_t columns = text_columns(text), room = width > 10 ? (size_t)((width - 10) / 6.4) : 0, shown = 0;
    if (room < FEWEST && room < columns)
        return;
    for (size_t i = 0; columns > room && i + 1 < room; i++) /* by characters */
        shown += text_character(text + shown, strlen(text + shown));
    char *cut = columns > room ? text_print("%.*s…", (int)shown, text) : text_copy(text);
    fprintf(p->file, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">", x + 5, y);
    text_html(p->file, cut);
    fputs("</text>\n", p->file);
    free(cut);
}

/* A tensor of a model shows its operator, which says more than the long name, and below it the shape. */
static void put_labels(const picture *p, const plan_storage *s, double x, double y, double width, double height)
{
    weir_buffer b = WEIR_INIT(weir_buffer);
    const plan_origin *origin = p->answer->source->origins ? &p->answer->source->origins[s->buffer] : NULL;
    if (height < 15 || weir_buffer_info(p->buffers, s->buffer, &b) != WEIR_OK)
        return;
    bool two = origin && origin->shape && height > 34 && 6.4 * (double)text_columns(origin->shape) + 10 < width;
    double middle = y + height / 2 + 4;
    put_label(p, origin && origin->shape ? origin->maker : b.name, x, two ? middle - 8 : middle, width);
    if (two)
        put_label(p, origin->shape, x, middle + 8, width);
}

static void put_storage(picture *p, size_t i)
{
    const plan_storage *s = &p->storages[i];
    double x = x_of(p, s->begin), width = x_of(p, s->end) - x;
    double y = y_of(p, s->offset + s->length), height = y_of(p, s->offset) - y;
    if (s->begin >= s->end || width * height < .01) {
        p->unseen += s->begin < s->end;
        return;
    }
    bool thin = width < 4 || height < 3;
    fprintf(p->file, "<rect class=\"t%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"var(--c%u)\"%s>",
            thin ? " thin" : "", x, y, width, height, colour_of(p, i), width > 12 && height > 12 ? " rx=\"2\"" : "");
    picture_put_title(p, s);
    fputs("</rect>\n", p->file);
    put_labels(p, s, x, y, width, height);
}

/* Marks over the tensors ------------------------------------------------------------------------------------------- */

static void put_peak(const picture *p)
{
    char size[24];
    double x = x_of(p, p->peak_step);
    bool left = x > (LEFT + RIGHT) / 2.0;
    const char *what = p->answer->source->steps && p->peak_step < p->answer->source->step_count
                           ? p->answer->source->steps[p->peak_step]
                           : "";
    char *text = text_print("most live: %s in step %" PRIu64 "%s%s", weir_size_format(p->peak, size, sizeof size),
                            p->peak_step, *what ? ", " : "", what);
    put_line(p, x, LIVE_TOP - 4, x, LIVE_BOTTOM, "bound");
    picture_put_text(p, left ? x + 2 : x - 2, LIVE_TOP - 8, left ? "bound halo end" : "bound halo", text);
    free(text);
}

static void put_bound(const picture *p)
{
    const weir_plan_details *sum = &p->answer->summary;
    double y = y_of(p, sum->lower_bound);
    if (y < TOP + .5)
        return;
    put_line(p, LEFT, y, RIGHT, y, "bound");
    picture_put_text(p, RIGHT - 6, y + 14, "bound halo end", "lower bound");
}

/* Each colour with its live bytes at the peak. */
static void put_legend(const picture *p)
{
    uint64_t live[COLOURS] = {0};
    bool seen[COLOURS] = {false};
    double x = LEFT;
    for (size_t i = 0; i < p->count; i++) {
        unsigned colour = colour_of(p, i);
        const plan_storage *s = &p->storages[i];
        seen[colour] = true;
        live[colour] += s->begin <= p->peak_step && p->peak_step < s->end ? s->length : 0;
    }
    for (unsigned i = 0; i < COLOURS; i++) {
        char size[24];
        if (!seen[i])
            continue;
        char *text =
            text_print("%s, %s", colour_name(p, i), live[i] ? weir_size_format(live[i], size, sizeof size) : "none");
        fprintf(p->file, "<rect x=\"%.1f\" y=\"%d\" width=\"11\" height=\"11\" rx=\"3\" fill=\"var(--c%u)\"/>\n", x,
                756, i);
        picture_put_text(p, x + 17, 766, "n", text);
        x += 17 + 6.6 * (double)text_columns(text) + 20;
        free(text);
    }
    picture_put_text(p, LEFT, 788, "", "sizes: live in the step in which the most is");
    if (p->unseen > 0) {
        char *text = text_print("%zu are too small to be seen", p->unseen);
        picture_put_text(p, RIGHT, 788, "end", text);
        free(text);
    }
}

weir_status plan_draw(const plan_answer *answer, const char *path)
{
    picture p = {.answer = answer, .buffers = plan_info(answer->plan).list, .arena = answer->summary.arena};
    p.file = output_file_open(path, "the picture");
    if (p.file == NULL)
        return WEIR_ERR_SYSTEM;
    p.storages = plan_storages(answer->plan, true, &p.count);
    p.steps = answer->summary.steps ? answer->summary.steps : 1;
    picture_sweep(&p, take_peak, &p);
    fprintf(p.file, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">\n", WIDTH, HEIGHT);
    fputs(style, p.file);
    picture_put_frame(&p);
    for (size_t i = 0; i < p.count; i++)
        put_storage(&p, i);
    put_live(&p);
    put_bound(&p);
    if (p.count > 0)
        put_peak(&p);
    put_legend(&p);
    fputs(script, p.file);
    fputs("</svg>\n", p.file);
    free(p.storages);
    return output_file_close(p.file, path, "the picture", 0);
}
