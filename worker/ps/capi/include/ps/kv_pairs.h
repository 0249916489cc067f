/* What workers and servers exchange. */
#pragma once

#include "ps/sarray.h"

namespace ps {

/* Keys, strictly ascending, and their values, key by key. */
template <typename Val>
struct KVPairs {
  SArray<Key> keys;
  SArray<Val> vals;
  /* How many values each key has. Empty if all have equally many. */
  SArray<int> lens;
  int priority = 0;
};

}  // namespace ps
