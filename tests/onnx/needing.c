/* See needed.c. */
int needed(void);
int needing(void);
int needing(void)
{
    return needed();
}
