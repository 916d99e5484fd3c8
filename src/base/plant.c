#include "base/plant.h"

wi_defect wi_plant = WI_PLANT_NOTHING;
