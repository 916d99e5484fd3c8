/* Takes so much of the static thread-local storage that the C library keeps for libraries that are opened late. */
static _Thread_local char bytes[EATER_BYTES] __attribute__((tls_model("initial-exec")));

char *eater(void);
char *eater(void)
{
    return bytes;
}
