/* Defects to order: how the simulator shows that it sees what it is there for.
 *
 * 0 in every program but `weir simulate --plant`. Read where a decision of this kind is made, and only where the device
 * is asked or waited for anyway. */
#ifndef WI_PLANT_H
#define WI_PLANT_H

typedef enum wi_defect {
    WI_PLANT_NOTHING = 0,
    WI_PLANT_EARLY_REUSE = 1,     /* a pending free is taken for passed */
    WI_PLANT_DROP_WAIT = 2,       /* a launch does not wait for the uses before it */
    WI_PLANT_UNMAP_UNDER_USE = 3, /* what is pending is unmapped like free memory */
    WI_PLANT_LOST_READER = 4,     /* a read that has ended is forgotten */
    WI_PLANT_FREE_UNDER_USE = 5,  /* a block is freed while a launch uses it */
    WI_DEFECTS
} wi_defect;

extern wi_defect wi_plant;

#endif
