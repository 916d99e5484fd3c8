/* Settings, and what the table at exit tells of: counts, and the last refusal. */
#include "interpose/preload/preload.h"
#include "base/values.h"

#include <stdio.h>

static atomic_uint_fast64_t events[WP_EVENTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wp_reason refusal;

static bool preload_settings_has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == length && strncmp(list, word, length) == 0)
            return true;
    return false;
}

static wp_settings settings;

/* NULL: it is not set, or empty. */
static char *preload_settings_copy_of(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? strdup(value) : NULL;
}

static void preload_settings_read_settings(void)
{
    const char *words = getenv("WEIR_EXEC");
    words = words ? words : "";
    settings = (wp_settings){.direct = preload_settings_has_word(words, "direct"),
                             .free_waits = preload_settings_has_word(words, "free-waits"),
                             .quiet = preload_settings_has_word(words, "quiet"),
                             .json = preload_settings_has_word(words, "json"),
                             .tree = preload_settings_copy_of("WEIR_EXEC_TREE"),
                             .budgets = preload_settings_copy_of("WEIR_EXEC_BUDGET")};
}

const wp_settings *wp_settings_of(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, preload_settings_read_settings);
    return &settings;
}

/* As weir reads it: the last item that fits wins. */
static uint64_t find_budget(char *list, const char *device)
{
    uint64_t bytes = 0, size;
    for (char *item; (item = strsep(&list, ","));) {
        char *equals = strchr(item, '=');
        if (equals)
            *equals = '\0';
        bool fits = equals ? strcmp(item, device) == 0 || (strcmp(item, "cuda") == 0 && strcmp(device, "cuda:0") == 0)
                           : strcmp(device, "host") != 0;
        if (fits && wi_size_read(equals ? equals + 1 : item, &size))
            bytes = size;
    }
    return bytes;
}

uint64_t wp_budget_given(const char *device)
{
    weir_option option = WEIR_INIT(weir_option);
    return weir_option_info("budget", 0, &option) == WEIR_OK ? find_budget(option.value, device) : 0;
}

uint64_t wp_tree_budget_given(const char *device)
{
    const char *given = wp_settings_of()->budgets;
    char *copy = given ? strdup(given) : NULL;
    uint64_t bytes = copy ? find_budget(copy, device) : 0;
    free(copy);
    return bytes;
}

void wp_note(wp_event event)
{
    atomic_fetch_add_explicit(&events[event], 1, memory_order_relaxed);
}

uint64_t wp_noted(wp_event event)
{
    return atomic_load(&events[event]);
}

CUresult wp_refuse(int ordinal, const char *function, size_t bytes)
{
    char why[896];
    wp_note(WP_EVENT_REFUSED);
    snprintf(why, sizeof why, "%s", weir_detail());
    wp_tree_say(ordinal, why, sizeof why);
    pthread_mutex_lock(&lock);
    snprintf(refusal.text, sizeof refusal.text, "%s of %zu bytes: %s", function, bytes, why);
    pthread_mutex_unlock(&lock);
    weir_log(WEIR_LOG_WARNING, "%s of %zu bytes was refused: %s", function, bytes, why);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

wp_reason wp_last_refusal(void)
{
    pthread_mutex_lock(&lock);
    wp_reason copy = refusal;
    pthread_mutex_unlock(&lock);
    return copy;
}
