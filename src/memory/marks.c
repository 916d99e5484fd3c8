#include "memory/marks.h"
#include "base/plant.h"

static weir_status no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no host memory to remember the use of a block");
}

/* Room for one more read, so that closing a ticket cannot fail. Open readers may all come from different streams. */
static weir_status reserve(wi_marks *marks)
{
    uint32_t needed = marks->read_count + marks->readers + 1;
    if (needed <= marks->read_capacity)
        return WEIR_OK;
    wi_event *reads = realloc(marks->reads, 2 * (size_t)needed * sizeof *reads);
    if (!reads)
        return no_memory();
    marks->reads = reads;
    marks->read_capacity = 2 * needed;
    return WEIR_OK;
}

weir_status wi_marks_open(wi_marks **marks, weir_access access, bool *opened)
{
    if (!*marks)
        *marks = calloc(1, sizeof **marks);
    wi_marks *m = *marks;
    weir_status status = m ? reserve(m) : no_memory();
    *opened = status == WEIR_OK && !m->writer && (access == WEIR_ACCESS_READ || m->readers == 0);
    if (*opened && access == WEIR_ACCESS_READ)
        m->readers++;
    else if (*opened)
        m->writer = true;
    return status;
}

static void add_read(wi_marks *marks, wi_event event)
{
    for (uint32_t i = 0; i < marks->read_count; i++)
        if (marks->reads[i].stream == event.stream) {
            marks->reads[i].sequence = wi_max(marks->reads[i].sequence, event.sequence);
            return;
        }
    wi_law(marks->read_count < marks->read_capacity);
    marks->reads[marks->read_count++] = event;
}

void wi_marks_close(wi_marks *marks, weir_access access, const wi_event *event)
{
    if (access == WEIR_ACCESS_READ) {
        wi_law(marks->readers > 0 && !marks->writer);
        marks->readers--;
        if (event && event->stream)
            add_read(marks, *event);
        return;
    }
    wi_law(marks->writer && marks->readers == 0);
    marks->writer = false;
    if (event) { /* it waited for all that is forgotten here */
        marks->write = *event;
        marks->read_count = 0;
    }
}

weir_status wi_marks_first_write(wi_marks **marks, wi_event event)
{
    if (!*marks)
        *marks = calloc(1, sizeof **marks);
    if (!*marks)
        return no_memory();
    if (!(*marks)->write.stream)
        (*marks)->write = event;
    return WEIR_OK;
}

bool wi_marks_held(const wi_marks *marks)
{
    return marks && (marks->writer || marks->readers > 0) && wi_plant != WI_PLANT_FREE_UNDER_USE;
}

bool wi_marks_point(const wi_marks *marks, weir_access access, uint32_t index, wi_event *out)
{
    if (!marks || index > (access == WEIR_ACCESS_READ ? 0 : marks->read_count))
        return false;
    *out = index == 0 ? marks->write : marks->reads[index - 1];
    return true;
}

bool wi_marks_passed(const wi_marks *marks, const wi_driver *driver, wi_device *device, wi_event *waiting)
{
    wi_event event;
    for (uint32_t i = 0; wi_marks_point(marks, WEIR_ACCESS_WRITE, i, &event); i++)
        if (event.stream && !driver->passed(device, event)) {
            *waiting = event;
            return false;
        }
    return true;
}

weir_status wi_marks_copy(const wi_marks *marks, wi_marks **out)
{
    *out = NULL;
    if (!marks)
        return WEIR_OK;
    wi_marks *copy = calloc(1, sizeof *copy);
    wi_event *reads = malloc((marks->read_count + 1) * sizeof *reads);
    if (!copy || !reads) {
        free(copy);
        free(reads);
        return no_memory();
    }
    if (marks->read_count > 0)
        memcpy(reads, marks->reads, marks->read_count * sizeof *reads);
    *copy = (wi_marks){
        .write = marks->write, .reads = reads, .read_count = marks->read_count, .read_capacity = marks->read_count + 1};
    *out = copy;
    return WEIR_OK;
}

void wi_marks_free(wi_marks *marks)
{
    if (marks)
        free(marks->reads);
    free(marks);
}
