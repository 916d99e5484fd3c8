/* This machine's own devices, a GPU's or a stub's: what a look tells of them beside what NVIDIA's libraries say, how
 * long it takes, and what it leaves behind. What starts CUDA's driver is a process of its own, as a process sees
 * devices once and for all.
 *
 *     test-hardware-gpu                  the tests; skipped without a device (77), unless WEIR_REQUIRE_CUDA=1
 *     test-hardware-gpu seen             what the driver shows, and what a look shows by its word
 *     test-hardware-gpu rules            for each line of the input, what a look shows of a process with that list
 *     test-hardware-gpu times            milliseconds of looks: the first one, later ones' median and longest
 *     test-hardware-gpu leave MS         ends while sources may still be asked
 *     test-hardware-gpu hold             looks, waits for a line, makes a runtime, waits again */
#include "core/core.h"
#include <weir/select.h>

#include <ctype.h>
#include <sys/wait.h>

#include "witness.h"

enum { PATIENT = 10000, COLD_MS = 500, WARM_MS = 50, LOOKS = 20 };

/* Processes of their own
 * -------------------------------------------------------------------------------------------- */

/* Keys without their beginnings and dashes, as the witness writes them: the driver does not say which are slices. */
static void print_look(const char *list)
{
    weir_hardware_options o = WEIR_INIT(weir_hardware_options);
    weir_hardware *hardware;
    o.limit_ms = PATIENT;
    o.visible = list;
    ok(weir_hardware_create(&o, &hardware));
    for (size_t i = 0; i < hardware->device_count; i++) {
        const weir_hardware_device *d = &hardware->devices[i];
        if (d->kind != WEIR_HARDWARE_CUDA || d->ordinal < 0)
            continue;
        for (const char *p = d->key + 4; *p; p++)
            if (*p != '-')
                putchar(tolower((unsigned char)*p));
        putchar(' ');
    }
    putchar('\n');
    weir_hardware_destroy(hardware);
}

static int print_seen(void)
{
    char text[1024];
    if (!witness_seen(text, sizeof text))
        return 77;
    puts(text);
    print_look(NULL);
    return 0;
}

static int print_rules(void)
{
    char list[256];
    while (fgets(list, sizeof list, stdin)) {
        list[strcspn(list, "\n")] = '\0';
        print_look(list);
    }
    return 0;
}

static double look_ms(void)
{
    struct timespec from, to;
    weir_hardware *hardware;
    clock_gettime(CLOCK_MONOTONIC, &from);
    ok(weir_hardware_create(NULL, &hardware));
    clock_gettime(CLOCK_MONOTONIC, &to);
    weir_hardware_destroy(hardware);
    return (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int print_times(void)
{
    double cold = look_ms(), later[LOOKS];
    for (int i = 0; i < LOOKS; i++)
        later[i] = look_ms();
    qsort(later, LOOKS, sizeof *later, by_size);
    printf("%.2f %.2f %.2f", cold, later[LOOKS / 2], later[LOOKS - 1]);
    return 0;
}

static int leave(const char *limit)
{
    weir_hardware_options o = WEIR_INIT(weir_hardware_options);
    weir_hardware *hardware;
    o.limit_ms = (uint32_t)strtoul(limit, NULL, 10);
    ok(weir_hardware_create(&o, &hardware));
    weir_hardware_destroy(hardware);
    return 0;
}

static void tell(const char *text)
{
    printf("%s\n", text);
    fflush(stdout);
    while (getchar() >= ' ')
        ;
}

static int hold_on(void)
{
    weir_hardware_options o = WEIR_INIT(weir_hardware_options);
    weir_hardware *hardware;
    weir_runtime *runtime;
    o.limit_ms = PATIENT;
    for (int i = 0; i < 3; i++) {
        ok(weir_hardware_create(&o, &hardware));
        weir_hardware_destroy(hardware);
    }
    tell("looked");
    tell(weir_runtime_get("cuda:0", NULL, &runtime) == WEIR_OK ? "runtime" : weir_detail());
    return 0;
}

/* One that is asked
 * ------------------------------------------------------------------------------------------------- */

typedef struct child {
    pid_t id;
    FILE *in, *out;
} child;

static child start(const char *word, const char *second)
{
    int to[2], from[2];
    assert_int_equal(pipe(to) + pipe(from), 0);
    fflush(NULL);
    child c = {.id = fork()};
    assert_true(c.id >= 0);
    if (c.id == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        execl("/proc/self/exe", "test-hardware-gpu", word, second, (char *)NULL);
        _exit(126);
    }
    close(to[0]);
    close(from[1]);
    c.in = fdopen(to[1], "w");
    c.out = fdopen(from[0], "r");
    return c;
}

static int finish(child *c)
{
    int status;
    if (c->in)
        fclose(c->in);
    fclose(c->out);
    assert_int_equal(waitpid(c->id, &status, 0), c->id);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* What it prints; its exit status has to be 0. */
static const char *answer(const char *word, const char *second)
{
    static char text[1024];
    child c = start(word, second);
    text[fread(text, 1, sizeof text - 1, c.out)] = '\0';
    int status = finish(&c);
    if (status)
        fail_msg("%s %s ends with %d", word, second ? second : "", status);
    return text;
}

/* The tests
 * --------------------------------------------------------------------------------------------------------- */

/* Lists for CUDA_VISIBLE_DEVICES: %U stands for the UUID of a device, %S for its beginning, %P for it without "GPU-",
 * %H for that in capitals, %L for its first letter, %M for a slice that is not there. What NVIDIA documents: */
static const char *const documented[] = {"",       "0",     "-1",    "0,-1",    "-1,0",  "0,0", "0,99",
                                         "99,0",   "1",     "1,0",   "abc",     "0,abc", "%U",  "%S",
                                         "%U,abc", "%U,%U", "GPU-x", "0,abc,0", "%M"};
/* And what it does not: for a driver itself to say. A word that is a device is found by naming that twice, as none is
 * seen then. */
static const char *const others[] = {
    " 0",
    "0 ",
    " 0 ",
    "0, 0",
    "0 ,0",
    "0,\t0",
    "\t0",
    "0,-1,0",
    "0,99,0",
    "99999999999999999999,0",
    "0abc",
    "0,0abc",
    "abc,0",
    "00",
    "0,00",
    "0x0",
    "0,0x0",
    "0x1",
    "+0",
    "0,+0",
    "-0",
    "0,-0",
    "0.5",
    "1gpu",
    "1, +0",
    ",",
    ",0",
    "0,",
    "0,,",
    "0,,0",
    "0,,1",
    "1,1",
    "0,1,0",
    "1,-1,0",
    "GPU-",
    "gpu-",
    "GPU",
    "G",
    "%P",
    "%U0",
    "%Ux",
    "%Sx",
    "%U,%S",
    "GPU-%L",
    "%U,GPU-%L",
    "%Sx,%U",
    "GPU-%U",
    "GPU-%H",
    "gpu-%P",
    "%U,GPU-%H",
    " %U",
    "%U ",
    "%U, %U",
    "%U ,%U",
    "%U,0",
    "0,%U",
    "%S,99",
    "%U,GPU-",
    "%U,GPU-ffffffff,%U",
    "%U,-1",
    "%U,-1,%U",
    "%U,,",
    "0,%M",
    "%U,%M",
    "%M,%U",
    "%M,0",
    "MIG-%U/0/0",
};

static void write_list(const char *pattern, char *list, size_t capacity)
{
    static const char no_slice[] = "MIG-00000000-0000-0000-0000-000000000000";
    const char *uuid = witness_uuid();
    size_t used = 0;
    for (const char *p = pattern; *p && used < capacity; p++) {
        char kind = '\0';
        if (*p == '%')
            kind = *++p;
        size_t from = used;
        int most = kind == 'S' ? 12 : kind && kind != 'L' ? 95 : 1;
        const char *text = kind == 'M'                                 ? no_slice
                           : kind == 'P' || kind == 'H' || kind == 'L' ? uuid + 4
                           : kind                                      ? uuid
                                                                       : p;
        used += (size_t)snprintf(list + used, capacity - used, "%.*s", most, text);
        for (; kind == 'H' && from < used; from++)
            list[from] = (char)toupper((unsigned char)list[from]);
    }
    assert_true(used < capacity);
    list[used] = '\0';
}

enum { DOCUMENTED = sizeof documented / sizeof documented[0], LISTS = DOCUMENTED + sizeof others / sizeof others[0] };

/* By the driver, by a look in a process that has the list, and by one in a process that has none. */
static struct {
    char list[256], driver[256], look[256], rules[256];
} said[LISTS];

static void read_line(FILE *from, char *line, size_t capacity)
{
    assert_non_null(fgets(line, (int)capacity, from));
    line[strcspn(line, "\n")] = '\0';
}

static int ask_all(void **state)
{
    (void)state;
    child c = start("rules", NULL);
    for (size_t i = 0; i < LISTS; i++) {
        write_list(i < DOCUMENTED ? documented[i] : others[i - DOCUMENTED], said[i].list, sizeof said[i].list);
        fprintf(c.in, "%s\n", said[i].list);
    }
    fclose(c.in);
    c.in = NULL;
    for (size_t i = 0; i < LISTS; i++)
        read_line(c.out, said[i].rules, sizeof said[i].rules);
    assert_int_equal(finish(&c), 0);
    for (size_t i = 0; i < LISTS; i++) {
        setenv("CUDA_VISIBLE_DEVICES", said[i].list, 1);
        c = start("seen", NULL);
        unsetenv("CUDA_VISIBLE_DEVICES");
        read_line(c.out, said[i].driver, sizeof said[i].driver);
        read_line(c.out, said[i].look, sizeof said[i].look);
        assert_int_equal(finish(&c), 0);
        if (witness_is_real())
            print_message("[%s] driver: %s rules: %s\n", said[i].list, said[i].driver, said[i].rules);
    }
    return 0;
}

static size_t differences(size_t from, size_t to, bool rules)
{
    size_t differ = 0;
    for (size_t i = from; i < to; i++) {
        const char *look = rules ? said[i].rules : said[i].look;
        if (strcmp(said[i].driver, look) == 0)
            continue;
        print_error("CUDA_VISIBLE_DEVICES=\"%s\": \"%s\" by the driver, \"%s\" by a look\n", said[i].list,
                    said[i].driver, look);
        differ++;
    }
    return differ;
}

static void the_drivers_word_is_told(void **state)
{
    (void)state;
    size_t some = 0, none = 0; /* lists have effect */
    assert_int_equal(differences(0, LISTS, false), 0);
    for (size_t i = 0; i < LISTS; i++) {
        some += strlen(said[i].driver) == 33;
        none += said[i].driver[0] == '\0';
    }
    assert_true(some >= 5 && none >= 5);
}

static void the_rules_are_the_drivers(void **state)
{
    (void)state;
    assert_int_equal(differences(0, DOCUMENTED, true), 0);
}

/* The stub reads a list in its own way. */
static void the_rules_are_the_drivers_in_what_is_not_documented(void **state)
{
    (void)state;
    if (!witness_is_real())
        skip();
    assert_int_equal(differences(DOCUMENTED, LISTS, true), 0);
}

/* A busy machine may hold up one of them. */
static void looks_are_short(void **state)
{
    (void)state;
    double cold[3], later[3], longest;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sscanf(answer("times", NULL), "%lf %lf %lf", &cold[i], &later[i], &longest), 3);
        print_message("a first look takes %.1f ms, later ones %.2f, the longest %.2f ms\n", cold[i], later[i], longest);
    }
    qsort(cold, 3, sizeof *cold, by_size);
    qsort(later, 3, sizeof *later, by_size);
    assert_true(cold[1] <= COLD_MS);
    assert_true(later[1] <= WARM_MS);
}

static void leaving_while_sources_are_asked(void **state)
{
    (void)state;
    for (int ms = 1; ms <= 121; ms += 10) {
        char limit[16];
        snprintf(limit, sizeof limit, "%d", ms);
        assert_string_equal(answer("leave", limit), "");
    }
}

/* By what is used of the device: a process that has looked takes nothing of it, and one with a runtime does. */
static void a_look_makes_no_context(void **state)
{
    (void)state;
    char line[1024];
    uint64_t before = witness_used();
    child c = start("hold", NULL);
    read_line(c.out, line, sizeof line);
    assert_string_equal(line, "looked");
    uint64_t looked = witness_used();
    fputs("\n", c.in);
    fflush(c.in);
    read_line(c.out, line, sizeof line);
    uint64_t taken = witness_used();
    print_message("used: %llu MiB, after looks %llu, with a runtime %llu (%s)\n", (unsigned long long)(before / MIB),
                  (unsigned long long)(looked / MIB), (unsigned long long)(taken / MIB), line);
    assert_true(looked <= before + WITNESS_NOISE);
    if (witness_is_real()) { /* it would be seen */
        assert_string_equal(line, "runtime");
        assert_true(taken >= looked + WITNESS_CONTEXT);
    }
    assert_int_equal(finish(&c), 0);
}

static bool has_device(void)
{
    child c = start("seen", NULL);
    char text[1024] = "";
    bool told = fgets(text, sizeof text, c.out) != NULL && text[0] != '\n';
    while (getc(c.out) != EOF)
        ;
    return finish(&c) == 0 && told && witness_begin();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_makes_no_context),
        cmocka_unit_test(looks_are_short),
        cmocka_unit_test(the_drivers_word_is_told),
        cmocka_unit_test(leaving_while_sources_are_asked),
        cmocka_unit_test(the_rules_are_the_drivers),
        cmocka_unit_test(the_rules_are_the_drivers_in_what_is_not_documented),
    };
    const char *word = argc > 1 ? argv[1] : "", *required = getenv("WEIR_REQUIRE_CUDA");
    if (strcmp(word, "seen") == 0)
        return print_seen();
    if (strcmp(word, "rules") == 0)
        return print_rules();
    if (strcmp(word, "times") == 0)
        return print_times();
    if (strcmp(word, "leave") == 0 && argc > 2)
        return leave(argv[2]);
    if (strcmp(word, "hold") == 0)
        return hold_on();
    if (!has_device()) {
        printf("skipped: CUDA's driver and NVML find no device together\n");
        return required && strcmp(required, "1") == 0 ? 1 : 77;
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1); /* or the order of different devices is a guess */
    return cmocka_run_group_tests_name("hardware-gpu", tests, ask_all, NULL);
}
