#include "cli/exec/exec.h"

#include "cli/cli.h"
#include "cli/text.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Finding ---------------------------------------------------------------------------------------------------------- */

static bool is_program(const char *path)
{
    struct stat its;
    return stat(path, &its) == 0 && S_ISREG(its.st_mode) && access(path, X_OK) == 0;
}

/* NULL: it is nowhere. */
static char *look_in_path(const char *name)
{
    const char *path = getenv("PATH");
    for (path = path ? path : "/bin:/usr/bin"; *path;) {
        size_t length = strcspn(path, ":");
        char *file = length ? text_print("%.*s/%s", (int)length, path, name) : text_print("./%s", name);
        if (is_program(file))
            return file;
        free(file);
        path += length + (path[length] == ':');
    }
    return NULL;
}

char *program_find(const char *name)
{
    char *found = strchr(name, '/') ? text_copy(name) : look_in_path(name);
    if (found && is_program(found))
        return found;
    if (!found)
        (void)cli_fail("there is no program %s in $PATH", name);
    else
        (void)cli_fail("%s is no program that can be run: %s", name,
                       access(name, X_OK) != 0 ? strerror(errno) : "it is no file");
    free(found);
    return NULL;
}

/* Checking --------------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
enum { OUR_MACHINE = EM_X86_64 };
#define OUR_MACHINE_NAME "x86-64"
#else
enum { OUR_MACHINE = EM_AARCH64 };
#define OUR_MACHINE_NAME "arm64"
#endif

/* Who runs it gets more rights than the caller has: the dynamic linker takes nothing from LD_PRELOAD then. */
static bool gains_rights(const char *path, const struct stat *its)
{
    bool by_user = (its->st_mode & S_ISUID) && its->st_uid != geteuid();
    bool by_group = (its->st_mode & S_ISGID) && (its->st_mode & S_IXGRP) && its->st_gid != getegid();
    return by_user || by_group || getxattr(path, "security.capability", NULL, 0) > 0;
}

/* Whether the program has a dynamic linker, which is in the table of its segments. */
static bool has_interpreter(int file, const Elf64_Ehdr *header)
{
    for (unsigned i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr segment;
        off_t at = (off_t)(header->e_phoff + (uint64_t)i * header->e_phentsize);
        if (pread(file, &segment, sizeof segment, at) == (ssize_t)sizeof segment && segment.p_type == PT_INTERP)
            return true;
    }
    return false;
}

static int check_elf(const char *path, int file, const Elf64_Ehdr *header)
{
    struct stat its;
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != OUR_MACHINE)
        return cli_fail("%s is a program for another machine or of 32 bits, and weir's library is for " OUR_MACHINE_NAME
                        ": run a build of it for that",
                        path);
    if (!has_interpreter(file, header))
        return cli_fail("%s is linked statically, so that nothing can be preloaded into it: link it with the C library "
                        "as a shared one (CUDA's runtime may be static)",
                        path);
    if (fstat(file, &its) == 0 && gains_rights(path, &its))
        return cli_fail("%s gives more rights to who runs it (set-user-ID, set-group-ID or capabilities), so that "
                        "nothing is preloaded into it: run a copy without them",
                        path);
    return CLI_OK;
}

/* What runs a script: the word behind #!, and with env the program that is named there. The caller frees it; NULL: it
 * cannot be told. */
static char *interpreter_of(const char *line)
{
    size_t skip = strspn(line, " \t"), length = strcspn(line + skip, " \t\n");
    char *word = text_print("%.*s", (int)length, line + skip);
    const char *slash = strrchr(word, '/'), *rest = line + skip + length;
    if (strcmp(slash ? slash + 1 : word, "env") != 0)
        return word;
    rest += strspn(rest, " \t");
    if (strncmp(rest, "-S", 2) == 0)
        rest += 2 + strspn(rest + 2, " \t");
    char *name = text_print("%.*s", (int)strcspn(rest, " \t\n"), rest);
    char *found = *name && *name != '-' && !strchr(name, '=') ? look_in_path(name) : NULL;
    free(word);
    free(name);
    return found;
}

static int exec_program_check(const char *path, int depth)
{
    enum { LINE = 256, SCRIPTS = 4 };
    union {
        Elf64_Ehdr header;
        char line[LINE];
    } begin = {.line = ""};
    int file = open(path, O_RDONLY | O_CLOEXEC), status = CLI_OK;
    if (file < 0) /* a file that cannot be read may still be run */
        return CLI_OK;
    ssize_t bytes = read(file, &begin, sizeof begin - 1);
    if (bytes >= (ssize_t)sizeof begin.header && memcmp(begin.header.e_ident, ELFMAG, SELFMAG) == 0) {
        status = check_elf(path, file, &begin.header);
    } else if (bytes > 2 && strncmp(begin.line, "#!", 2) == 0 && depth < SCRIPTS) {
        begin.line[bytes] = '\0';
        char *interpreter = interpreter_of(begin.line + 2);
        status = interpreter ? exec_program_check(interpreter, depth + 1) : CLI_OK;
        free(interpreter);
    }
    close(file);
    return status;
}

int program_check(const char *path)
{
    return exec_program_check(path, 0);
}
