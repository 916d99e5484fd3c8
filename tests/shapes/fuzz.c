/* Hostile models: whatever the bytes, they are refused with a reason, or their graph is inferred and a plan of it
 * holds.
 *
 *   test-shapes-fuzz COUNT FOLDER   so many executions on damaged copies of the folder's files, always the same ones
 *
 * Built with clang there is libFuzzer's own program as well, which takes that library's words. */
#include <weir/plan.h>

#include "onnx/file/file.h"
#include "onnx/shapes/graph.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void demand(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s; the detail is: %s\n", what, weir_detail());
    abort();
}

/* Is every value there when a node reads it, by the list of buffers? Told apart from how the list was made. */
static void look_at_lives(const graph *g, const graph_memory *memory)
{
    weir_buffer *buffers = calloc(g->value_count + 1, sizeof *buffers);
    demand(buffers != NULL, "no memory");
    for (uint32_t i = 0; i < memory->count; i++) {
        weir_buffer *b = &buffers[memory->values[i]];
        b->struct_size = sizeof *b;
        demand(weir_buffer_info(memory->buffers, i, b) == WEIR_OK, "a buffer is missing");
    }
    for (uint64_t step = 0; step < memory->steps; step++) {
        const graph_node *node = &g->nodes[memory->order[step]];
        for (uint32_t k = 0; k < node->input_count; k++) {
            const weir_buffer *b = node->inputs[k] == GRAPH_NONE ? NULL : &buffers[node->inputs[k]];
            demand(!b || b->end == 0 || (b->begin <= step && step < b->end), "a value is read when it is not live");
        }
    }
    for (size_t i = 0; i < g->output_count; i++)
        demand(buffers[g->outputs[i]].end == (memory->steps ? memory->steps : 1), "an output does not live to the end");
    free(buffers);
}

/* Is an output written over, itself or as a view? */
static void look_at_outputs(const graph *g, const graph_memory *memory)
{
    weir_buffer b = {.struct_size = sizeof b};
    bool *kept = calloc(memory->count + 1, sizeof *kept);
    demand(kept != NULL, "no memory");
    for (uint32_t i = 0; i < memory->count; i++)
        if (g->values[memory->values[i]].output && weir_buffer_info(memory->buffers, i, &b) == WEIR_OK)
            kept[b.sharing == WEIR_SHARING_VIEW ? b.of : i] = true;
    for (uint32_t i = 0; i < memory->count; i++)
        demand(weir_buffer_info(memory->buffers, i, &b) == WEIR_OK &&
                   (b.sharing != WEIR_SHARING_IN_PLACE || !kept[b.of]),
               "an output is written over");
    free(kept);
}

static void plan(const graph *g)
{
    graph_memory memory;
    weir_plan *made = NULL;
    weir_plan_options options = {.struct_size = sizeof options, .mode = WEIR_PLAN_QUICK, .alignment = 64};
    weir_status status = graph_memory_make(g, true, NULL, &memory);
    if (status == WEIR_OK) {
        look_at_lives(g, &memory);
        look_at_outputs(g, &memory);
        status = weir_plan_create(memory.buffers, &options, &made);
        demand(status != WEIR_OK || weir_plan_check(made, memory.buffers) == WEIR_OK, "the plan does not hold");
    }
    demand(status == WEIR_OK || *weir_detail(), "refused without a word");
    weir_plan_destroy(made);
    graph_memory_clear(&memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char nowhere[] = "/nonexistent";
    graph_given dims[] = {{.name = "n", .size = 3},
                          {.name = "batch", .size = 2},
                          {.name = "sequence", .size = 5},
                          {.name = "height", .size = 9},
                          {.name = "width", .size = 8}};
    graph_givens givens = {.dims = dims, .dim_count = sizeof dims / sizeof *dims};
    onnx_file file = {.named = nowhere,
                      .real = nowhere,
                      .home = nowhere,
                      .folder = nowhere,
                      .name = "fuzz.onnx",
                      .data = data,
                      .size = size};
    graph g = {.file = NULL};
    weir_status status = size ? onnx_check(&file) : WEIR_OK;
    if (status == WEIR_OK)
        status = graph_read(&file, &givens, &g);
    if (status == WEIR_OK)
        status = graph_infer(&g);
    if (status == WEIR_OK)
        plan(&g);
    else
        demand(strstr(weir_detail(), "fuzz.onnx") != NULL, "refused without naming the file");
    graph_clear(&g);
    return 0;
}

#ifndef WEIR_LIBFUZZER
/* Damage
 * ------------------------------------------------------------------------------------------------------------- */

enum { SEEDS = 100, MOST = 1 << 16 };

typedef struct seed {
    uint8_t *data;
    size_t size;
} seed;

static uint64_t state = 0x9e3779b97f4a7c15u;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static size_t read_seeds(const char *folder, seed *list)
{
    struct dirent **names;
    int found = scandir(folder, &names, NULL, alphasort);
    size_t count = 0;
    for (int i = 0; i < found; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        FILE *file = strstr(names[i]->d_name, ".onnx") && count < SEEDS ? fopen(path, "rb") : NULL;
        if (file) {
            list[count].data = malloc(MOST);
            demand(list[count].data != NULL, "no memory");
            list[count].size = fread(list[count].data, 1, MOST, file);
            fclose(file);
            if (list[count].size < MOST)
                count++;
            else
                free(list[count].data);
        }
        free(names[i]);
    }
    if (found >= 0)
        free(names);
    return count;
}

/* Lengths stay as they are mostly, as otherwise nothing of a file would be understood any more. */
static size_t damage(uint8_t *data, size_t size)
{
    static const uint8_t odd[] = {0, 1, 2, 7, 16, 17, 127, 128, 255};
    for (uint64_t times = next_random() % 5; times-- > 0 && size > 0;) {
        size_t at = next_random() % size;
        switch (next_random() % 4) {
        case 0:
            data[at] ^= (uint8_t)(1u << next_random() % 8);
            break;
        case 1:
            data[at] = odd[next_random() % sizeof odd];
            break;
        case 2: {
            size_t from = next_random() % size, most = size - (at > from ? at : from);
            memmove(data + at, data + from, 1 + next_random() % (most < 12 ? most : 12));
            break;
        }
        default:
            data[at] = (uint8_t)next_random();
        }
    }
    return next_random() % 50 == 0 ? next_random() % (size + 1) : size;
}

int main(int argc, char **argv)
{
    seed seeds[SEEDS];
    uint64_t count = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
    size_t known = count ? read_seeds(argv[2], seeds) : 0;
    demand(known > 0, "usage: test-shapes-fuzz COUNT FOLDER, with .onnx files in it");
    for (uint64_t i = 0; i < count; i++) {
        const seed *from = &seeds[i % known];
        uint8_t *data = malloc(from->size + 1);
        demand(data != NULL, "no memory");
        memcpy(data, from->data, from->size);
        size_t size = i < known ? from->size : damage(data, from->size);
        uint8_t *exact = realloc(data, size ? size : 1); /* so that a sanitizer sees the first byte beyond */
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    for (size_t i = 0; i < known; i++)
        free(seeds[i].data);
    printf("%llu executions\n", (unsigned long long)count);
    return 0;
}
#endif
