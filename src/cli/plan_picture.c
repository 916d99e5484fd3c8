/* plan_picture.c: the arena as a picture: time across, address up, a rectangle for each tensor. It is one SVG file that
 * needs nothing else; where scripts may run, the tensor under the pointer is told at once. */
#include "plan_picture.h"

#include "html.h"
#include "text.h"

#include "trace/output_file.h"

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

/* The title of a rectangle is what a browser shows in a while; this shows it at once, on a line of its own. */
static const char script[] =
    "<script><![CDATA[\n"
    "const line = document.getElementById('told'), empty = line.textContent;\n"
    "document.documentElement.addEventListener('pointermove', event => {\n"
    "  const title = event.target.classList.contains('t') ? event.target.querySelector('title') : null;\n"
    "  line.textContent = title ? title.textContent.replaceAll('\\n', ' · ') : empty;\n"
    "});\n"
    "]]></script>\n";

double picture_x(const picture *p, uint64_t step)
{
    return PICTURE_LEFT + (PICTURE_RIGHT - PICTURE_LEFT) * ((double)step / (double)p->steps);
}

double picture_y(const picture *p, uint64_t address)
{
    double most = p->arena ? (double)p->arena : 1;
    return PICTURE_BOTTOM - (PICTURE_BOTTOM - PICTURE_TOP) * ((double)address / most);
}

/* Frame ------------------------------------------------------------------------------------------------------------ */

static void put_text(const picture *p, double x, double y, const char *class_name, const char *text)
{
    fprintf(p->file, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class_name);
    html_text(p->file, text);
    fputs("</text>\n", p->file);
}

static void put_line(const picture *p, double x1, double y1, double x2, double y2, const char *class_name)
{
    fprintf(p->file, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", class_name, x1, y1, x2, y2);
}

static void put_heading(const picture *p)
{
    const weir_plan_summary *sum = &p->answer->summary;
    char arena[24], more[24], unshared[24];
    char *above = sum->proven ? text_copy(": no plan is smaller")
                              : text_print(", %s above the lower bound",
                                           weir_size_format(sum->arena - sum->lower_bound, more, sizeof more));
    char *text = text_print("%s%s. Unshared %s, %u buffers in %" PRIu64 " steps",
                            weir_size_format(sum->arena, arena, sizeof arena), above,
                            weir_size_format(sum->unshared, unshared, sizeof unshared), sum->buffers, sum->steps);
    free(above);
    put_text(p, 32, 44, "title", plan_file_name(p->answer->words));
    put_text(p, 32, 68, "n", text);
    free(text);
    fprintf(p->file, "<text id=\"told\" x=\"32\" y=\"98\" class=\"strong n\">%s</text>\n",
            p->count ? "Point at a rectangle to see what it is" : "Nothing here takes memory");
}

/* A round number of bytes of which some five make the arena. */
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
        double y = picture_y(p, at);
        if (at > 0)
            put_line(p, PICTURE_LEFT, y, PICTURE_RIGHT, y, "grid");
        /* the arena's own end is labelled too, and must not meet the last tick */
        if (at == 0 || (y > PICTURE_TOP + 14 && at != p->arena))
            put_text(p, PICTURE_LEFT - 10, y + 4, "end n", at ? weir_size_format(at, text, sizeof text) : "0");
    }
    put_text(p, PICTURE_LEFT - 10, PICTURE_TOP + 4, "strong end n", weir_size_format(p->arena, text, sizeof text));
}

/* 1, 2, 5, 10, 20 … so that no more than ten of them make all. */
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
        put_text(p, picture_x(p, at), PICTURE_LIVE_BOTTOM + 18, "mid n", text);
        put_line(p, picture_x(p, at), PICTURE_LIVE_BOTTOM, picture_x(p, at), PICTURE_LIVE_BOTTOM + 4, "grid");
        free(text);
    }
    put_text(p, PICTURE_LEFT - 10, PICTURE_LIVE_BOTTOM + 18, "end", "step");
}

static void put_frame(const picture *p)
{
    fprintf(p->file,
            "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n<rect class=\"card\" x=\"%d\" y=\"%d\" width=\"%d\" "
            "height=\"%d\"/>\n<rect class=\"card\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
            PICTURE_WIDTH, PICTURE_HEIGHT, PICTURE_LEFT, PICTURE_TOP, PICTURE_RIGHT - PICTURE_LEFT,
            PICTURE_BOTTOM - PICTURE_TOP, PICTURE_LEFT, PICTURE_LIVE_TOP, PICTURE_RIGHT - PICTURE_LEFT,
            PICTURE_LIVE_BOTTOM - PICTURE_LIVE_TOP);
    put_heading(p);
    put_addresses(p);
    put_steps(p);
    put_text(p, PICTURE_LEFT - 10, PICTURE_LIVE_TOP + 12, "end", "live");
}

/* Tensors ---------------------------------------------------------------------------------------------------------- */

static void put_title(const picture *p, const plan_storage *s)
{
    weir_buffer b = WEIR_INIT(weir_buffer);
    char size[24];
    if (weir_buffers_get(p->buffers, s->buffer, &b) != WEIR_OK)
        return;
    const plan_origin *origin = p->answer->source->origins ? &p->answer->source->origins[s->buffer] : NULL;
    fputs("<title>", p->file);
    html_text(p->file, b.name);
    if (origin && origin->maker) {
        fputs("\n", p->file);
        html_text(p->file, origin->maker);
    }
    if (origin && origin->looks)
        fprintf(p->file, "\n%s", origin->looks);
    fprintf(p->file, "\n%s at %" PRIu64 "\nsteps %" PRIu64 " to %" PRIu64, weir_size_format(b.bytes, size, sizeof size),
            s->offset, s->begin, s->end - 1);
    if (s->views > 0)
        fprintf(p->file, "\n%u %s", s->views, s->views == 1 ? "view" : "views");
    if (s->over != WEIR_NO_BUFFER)
        fputs("\nwritten over its input", p->file);
    fputs("</title>", p->file);
}

/* A text inside its rectangle, cut where it does not fit; nothing where hardly any of it would be left. */
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
    html_text(p->file, cut);
    fputs("</text>\n", p->file);
    free(cut);
}

/* What it is: of a model's tensors the operator says more than the name, which is long, and the shape comes below. */
static void put_labels(const picture *p, const plan_storage *s, double x, double y, double width, double height)
{
    weir_buffer b = WEIR_INIT(weir_buffer);
    const plan_origin *origin = p->answer->source->origins ? &p->answer->source->origins[s->buffer] : NULL;
    if (height < 15 || weir_buffers_get(p->buffers, s->buffer, &b) != WEIR_OK)
        return;
    bool two = origin && origin->looks && height > 34 && 6.4 * (double)text_columns(origin->looks) + 10 < width;
    double middle = y + height / 2 + 4;
    put_label(p, origin && origin->looks ? origin->maker : b.name, x, two ? middle - 8 : middle, width);
    if (two)
        put_label(p, origin->looks, x, middle + 8, width);
}

static void put_storage(picture *p, size_t i)
{
    const plan_storage *s = &p->storages[i];
    double x = picture_x(p, s->begin), width = picture_x(p, s->end) - x;
    double y = picture_y(p, s->offset + s->length), height = picture_y(p, s->offset) - y;
    if (s->begin >= s->end || width * height < .01) {
        p->unseen += s->begin < s->end;
        return;
    }
    bool thin = width < 4 || height < 3;
    fprintf(p->file, "<rect class=\"t%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"var(--c%u)\"%s>",
            thin ? " thin" : "", x, y, width, height, picture_colour(p, i),
            width > 12 && height > 12 ? " rx=\"2\"" : "");
    put_title(p, s);
    fputs("</rect>\n", p->file);
    put_labels(p, s, x, y, width, height);
}

/* Marks over the tensors --------------------------------------------------------------------------------------------- */

static void put_peak(const picture *p)
{
    char size[24];
    double x = picture_x(p, p->peak_step);
    bool left = x > (PICTURE_LEFT + PICTURE_RIGHT) / 2.0;
    const char *what = p->answer->source->steps && p->peak_step < p->answer->source->step_count
                           ? p->answer->source->steps[p->peak_step]
                           : "";
    char *text = text_print("most live: %s in step %" PRIu64 "%s%s", weir_size_format(p->peak, size, sizeof size),
                            p->peak_step, *what ? ", " : "", what);
    put_line(p, x, PICTURE_LIVE_TOP - 4, x, PICTURE_LIVE_BOTTOM, "bound");
    put_text(p, left ? x + 2 : x - 2, PICTURE_LIVE_TOP - 8, left ? "bound halo end" : "bound halo", text);
    free(text);
}

static void put_bound(const picture *p)
{
    const weir_plan_summary *sum = &p->answer->summary;
    double y = picture_y(p, sum->lower_bound);
    if (y < PICTURE_TOP + .5)
        return;
    put_line(p, PICTURE_LEFT, y, PICTURE_RIGHT, y, "bound");
    put_text(p, PICTURE_RIGHT - 6, y + 14, "bound halo end", "lower bound");
}

/* Each colour with what it has live at the peak. */
static void put_legend(const picture *p)
{
    uint64_t live[PICTURE_COLOURS] = {0};
    bool seen[PICTURE_COLOURS] = {false};
    double x = PICTURE_LEFT;
    for (size_t i = 0; i < p->count; i++) {
        unsigned colour = picture_colour(p, i);
        const plan_storage *s = &p->storages[i];
        seen[colour] = true;
        live[colour] += s->begin <= p->peak_step && p->peak_step < s->end ? s->length : 0;
    }
    for (unsigned i = 0; i < PICTURE_COLOURS; i++) {
        char size[24];
        if (!seen[i])
            continue;
        char *text = text_print("%s, %s", picture_colour_name(p, i),
                                live[i] ? weir_size_format(live[i], size, sizeof size) : "none");
        fprintf(p->file, "<rect x=\"%.1f\" y=\"%d\" width=\"11\" height=\"11\" rx=\"3\" fill=\"var(--c%u)\"/>\n", x,
                756, i);
        put_text(p, x + 17, 766, "n", text);
        x += 17 + 6.6 * (double)text_columns(text) + 20;
        free(text);
    }
    put_text(p, PICTURE_LEFT, 788, "", "sizes: live in the step in which the most is");
    if (p->unseen > 0) {
        char *text = text_print("%zu are too small to be seen", p->unseen);
        put_text(p, PICTURE_RIGHT, 788, "end", text);
        free(text);
    }
}

weir_status plan_draw(const plan_answer *answer, const char *path)
{
    picture p = {.answer = answer, .buffers = weir_plan_buffers(answer->plan), .arena = answer->summary.arena};
    p.file = sink_open(path, "the picture");
    if (p.file == NULL)
        return WEIR_ERR_SYSTEM;
    p.storages = plan_storages(answer->plan, true, &p.count);
    p.steps = answer->summary.steps ? answer->summary.steps : 1;
    picture_find_peak(&p);
    fprintf(p.file, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">\n", PICTURE_WIDTH,
            PICTURE_HEIGHT);
    fputs(style, p.file);
    put_frame(&p);
    for (size_t i = 0; i < p.count; i++)
        put_storage(&p, i);
    picture_put_live(&p);
    put_bound(&p);
    if (p.count > 0)
        put_peak(&p);
    put_legend(&p);
    fputs(script, p.file);
    fputs("</svg>\n", p.file);
    free(p.storages);
    return sink_close(p.file, path, "the picture", 0);
}
