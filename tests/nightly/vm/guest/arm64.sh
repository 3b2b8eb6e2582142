# A machine with hardware counters; the load knows what it should cost.
start counted --mode record --counter cycles --counter instructions --energy none
counted_load 0 1000 >/share/out/counted.json
stop counted

start more --mode record --counter cycles --counter instructions --counter more=0:1:u --counter more=0:1:k --counter more=0:7 --energy none
counted_load 0 300 >/share/out/more.json
stop more

# Of these the machine cannot count as many at a time: they take turns.
start turns --mode record --counter cycles --counter instructions $MANY --energy none
counted_load 0 1000 >/share/out/turns.json
stop turns

start absent --mode record --counter cycles --counter llc-misses --energy none
counted_load 0 50 >/share/out/absent.json
stop absent
