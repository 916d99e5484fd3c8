/* A library that another one needs, in a version that is not there (providers.c). */
__attribute__((visibility("default"))) int needed(void);
int needed(void)
{
    return 3;
}
