# A machine with hardware counters; the load knows what it should cost.
start counted --mode record --counter cycles --counter instructions --energy "replay:$REPLAY"
counted_load 0 1000 >/share/out/counted.json
stop counted

start absent --mode record --counter cycles --counter llc-misses --energy none
counted_load 0 50 >/share/out/absent.json
stop absent

# More events than the machine has counters: they take turns.
start crowded --mode record --counter cycles --counter instructions --energy none
start crowded_live --mode live --counter cycles --counter instructions --energy none
counted_load 0 1000 "$COMPETITORS" >/share/out/crowded.json
stop crowded_live
stop crowded
