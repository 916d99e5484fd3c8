/* How long a look at the hardware takes: in processes that never looked, and again in one that has. */
#include <weir/select.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COLD = 20, WARM = 200 };

static double look(void)
{
    weir_hardware *hardware = NULL;
    if (weir_hardware_create(NULL, &hardware) != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_detail());
        exit(1);
    }
    double seconds = hardware->seconds;
    weir_hardware_destroy(hardware);
    return seconds;
}

/* In a process of its own, made before this one has used weir. */
static double look_cold(void)
{
    int ends[2];
    double seconds = 0;
    if (pipe(ends) != 0)
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        seconds = look();
        _exit(write(ends[1], &seconds, sizeof seconds) == sizeof seconds ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &seconds, sizeof seconds) != sizeof seconds)
        exit(1);
    close(ends[0]);
    waitpid(child, NULL, 0);
    return seconds;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_row(const char *name, double *seconds, size_t count)
{
    qsort(seconds, count, sizeof *seconds, ascending);
    printf("| %s | %zu | %.2f | %.2f | %.2f |\n", name, count, seconds[count / 2] * 1e3,
           seconds[count - 1 - count / 100] * 1e3, seconds[count - 1] * 1e3);
}

int main(void)
{
    double cold[COLD], warm[WARM];
    for (size_t i = 0; i < COLD; i++)
        cold[i] = look_cold();
    (void)look();
    for (size_t i = 0; i < WARM; i++)
        warm[i] = look();
    puts("| a look at the hardware, ms | looks | median | p99 | max |\n|---|---|---|---|---|");
    print_row("the first of a process", cold, COLD);
    print_row("a later one", warm, WARM);
    return 0;
}
