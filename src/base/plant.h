/* Defects to order: how the simulator shows that it sees what it is there for.
 *
 * 0 in every program but `weir simulate --plant`. Read where a decision of this kind is made, and only where the device
 * is asked or waited for anyway. */
#ifndef WI_PLANT_H
#define WI_PLANT_H

typedef enum wi_defect {
    WI_PLANT_NOTHING = 0,
    WI_PLANT_EARLY_REUSE = 1,     /* a pending free is taken for passed */
    WI_PLANT_DROP_WAIT = 2,       /* what has to be waited for counts as waited for */
    WI_PLANT_UNMAP_UNDER_USE = 3, /* what is pending is unmapped like free memory */
    WI_DEFECTS
} wi_defect;

extern wi_defect wi_plant;

#endif
