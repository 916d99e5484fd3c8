#include "manifest/words.h"

#include "base/edit_distance.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *const wi_words_frameworks[] = {"onnx", "gguf", "llm", NULL};
const char *const wi_words_formats[] = {"onnx", "gguf", "genai", NULL};
const char *const wi_words_precisions[] = {"fp32",     "float32", "fp16",  "float16", "bf16",
                                           "bfloat16", "int8",    "uint8", "fp8",     NULL};
const char *const wi_words_isolation[] = {"best_effort", "reserved", "hard", NULL};

const char *wi_word(const char *const *words, const char *text)
{
    for (; *words; words++)
        if (strcasecmp(*words, text) == 0)
            return *words;
    return NULL;
}

const char *wi_word_near(const char *const *words, const char *text)
{
    const char *best = NULL;
    size_t least = strlen(text) / 2; /* more than half of it is another word */
    for (; *words; words++) {
        size_t distance = wi_edit_distance(text, *words);
        if (distance <= least && (!best || distance < least)) {
            best = *words;
            least = distance;
        }
    }
    return best;
}

const char *wi_word_of(wi_reading *r, const wi_value *v, const char *const *words, const char *what)
{
    if (!json_is_string(v->json)) {
        wi_wrong_type(r, v, "a text");
        return NULL;
    }
    const char *text = json_string_value(v->json), *word = wi_word(words, text);
    if (word)
        return word;
    char list[256] = "";
    for (size_t i = 0, used = 0; words[i] && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
    const char *near = wi_word_near(words, text);
    wi_shown shown;
    wi_problem_add(&r->problems, v->at, "%s: there is no %s \"%s\"; there are %s%s%s", wi_field_name(v->field), what,
                   wi_show(&shown, text), list, near ? ", the nearest is " : "", near ? near : "");
    return NULL;
}
