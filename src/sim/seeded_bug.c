#include "base/seeded_bug.h"

wi_bug wi_seeded_bug = WI_BUG_NONE;
