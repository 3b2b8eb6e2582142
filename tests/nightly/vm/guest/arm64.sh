# A machine with hardware counters; the load knows what it should cost.
start counted --mode record --counter cycles --counter instructions --energy "replay:$REPLAY"
counted_load 0 1000 >/share/out/counted.json
stop counted

start more --mode record --counter cycles --counter instructions --counter more=0:1:u --counter more=0:1:k --counter more=0:7 --energy none
counted_load 0 300 >/share/out/more.json
stop more

# Of these the machine cannot count as many at a time.
start turns --mode record --counter cycles --counter instructions $MANY --energy none
counted_load 0 1000 >/share/out/turns.json
stop turns

start absent --mode record --counter cycles --counter llc-misses --energy none
counted_load 0 50 >/share/out/absent.json
stop absent

# More events than the machine has counters: they take turns.
start crowded --mode record --counter cycles --counter instructions --energy none
start crowded_live --mode live --counter cycles --counter instructions --energy none
counted_load 0 1000 "$COMPETITORS" >/share/out/crowded.json
stop crowded_live
stop crowded
