/* Copies of what engines say of their models, which outlive the instance that said it. */
#include "model/model.h"
#include <weir/engine.h>

struct wi_about {
    weir_model_details info;
    size_t rank; /* of the candidate */
    bool answered;
    struct wi_about *next;
    _Alignas(max_align_t) char memory[];
};

/* Where copies go. Without memory it counts. */
typedef struct packer {
    char *memory;
    size_t used;
} packer;

static void *pack(packer *to, const void *bytes, size_t count)
{
    char *place = to->memory ? to->memory + to->used : NULL;
    to->used += count;
    if (place && count > 0)
        memcpy(place, bytes, count);
    return place;
}

static const char *pack_text(packer *to, const char *text)
{
    return text ? pack(to, text, strlen(text) + 1) : NULL;
}

static void pack_names(packer *to, weir_port *ports, const weir_port *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *name = pack_text(to, from[i].name);
        if (ports)
            ports[i].name = name;
    }
}

/* Arrays first, for their alignment. */
static void pack_info(packer *to, const weir_model_details *from, weir_model_details *out)
{
    weir_port *inputs = pack(to, from->inputs, from->input_count * sizeof *from->inputs);
    weir_port *outputs = pack(to, from->outputs, from->output_count * sizeof *from->outputs);
    weir_provider_share *shares = pack(to, from->shares, from->share_count * sizeof *from->shares);
    *out = *from;
    out->inputs = inputs;
    out->outputs = outputs;
    out->shares = shares;
    pack_names(to, inputs, from->inputs, from->input_count);
    pack_names(to, outputs, from->outputs, from->output_count);
    for (size_t i = 0; i < from->share_count; i++) {
        const char *provider = pack_text(to, from->shares[i].provider);
        if (shares)
            shares[i].provider = provider;
    }
    out->engine = pack_text(to, from->engine);
    out->version = pack_text(to, from->version);
    out->provider = pack_text(to, from->provider);
    out->architecture = pack_text(to, from->architecture);
    out->remarks = pack_text(to, from->remarks);
}

wi_about *wi_about_copy(const weir_model_details *info, size_t rank, bool answered)
{
    packer to = {NULL, 0};
    weir_model_details counted;
    pack_info(&to, info, &counted);
    wi_about *about = malloc(sizeof *about + to.used);
    if (!about)
        return NULL;
    to = (packer){about->memory, 0};
    pack_info(&to, info, &about->info);
    about->rank = rank;
    about->answered = answered;
    about->next = NULL;
    return about;
}

const wi_about *wi_about_find(const wi_about *list, size_t rank, bool answered)
{
    while (list && (list->rank != rank || list->answered != answered))
        list = list->next;
    return list;
}

void wi_about_add(wi_about **list, wi_about *about)
{
    about->next = *list;
    *list = about;
}

const weir_model_details *wi_about_info(const wi_about *about)
{
    return &about->info;
}

void wi_about_free(wi_about *list)
{
    for (wi_about *next; list; list = next) {
        next = list->next;
        free(list);
    }
}
