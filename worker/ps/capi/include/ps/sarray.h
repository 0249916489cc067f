/* Arrays that are shared. */
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <vector>

#include "ps/base.h"
#include "ps/range.h"

namespace ps {

/* A part of a shared array. Copies and segments share its elements, and keep them alive. A change of the size of one does not change
 * that of others. */
template <typename V>
class SArray {
 public:
  SArray() = default;

  /* So many elements of one value. */
  explicit SArray(std::size_t size, V value = V()) { resize(size, value); }

  /* Copies elements. */
  SArray(std::initializer_list<V> list) { CopyFrom(list.begin(), list.size()); }
  explicit SArray(const std::vector<V>& from) { CopyFrom(from.data(), from.size()); }

  /* Shares a vector. */
  explicit SArray(const std::shared_ptr<std::vector<V>>& from)
      : data_(from, from->data()), size_(from->size()), capacity_(from->size()) {}

  /* Shares the memory of an array of another type. */
  template <typename W>
  explicit SArray(const SArray<W>& from) {
    *this = from;
  }

  /* Memory of the program, which is deleted with the last share if it is deletable, and else lives longer than that. */
  SArray(V* data, std::size_t size, bool deletable = false) {
    if (deletable) {
      reset(data, size, [](V* pointer) { delete[] pointer; });
    } else {
      reset(data, size, [](V*) {});
    }
  }

  template <typename W>
  void operator=(const SArray<W>& from) {
    data_ = std::shared_ptr<V>(from.ptr(), reinterpret_cast<V*>(from.data()));
    size_ = from.size() * sizeof(W) / sizeof(V);
    capacity_ = from.capacity() * sizeof(W) / sizeof(V);
  }

  /* Takes memory over, and a function that gets its address when no share is left. */
  template <typename Deleter>
  void reset(V* data, std::size_t size, Deleter deleter) {
    data_.reset(data, deleter);
    size_ = capacity_ = size;
  }

  /* Makes it longer or shorter. Shares of the elements are left if they do not fit. */
  void resize(std::size_t size, V value = V()) {
    const std::size_t before = size_;
    reserve(size);
    size_ = size;
    if (size > before) std::fill(data() + before, data() + size, value);
  }

  void reserve(std::size_t size) {
    if (size <= capacity_) return;
    std::shared_ptr<V> grown(new V[size], [](V* pointer) { delete[] pointer; });
    std::copy(begin(), end(), grown.get());
    data_ = std::move(grown);
    capacity_ = size;
  }

  /* Leaves the shared elements. */
  void clear() {
    data_.reset();
    size_ = capacity_ = 0;
  }

  /* Copies elements to memory of its own. */
  void CopyFrom(const V* from, std::size_t size) {
    clear();
    reserve(size);
    size_ = size;
    std::copy(from, from + size, data());
  }
  void CopyFrom(const SArray<V>& from) {
    if (this != &from) CopyFrom(from.data(), from.size());
  }
  template <typename Iterator>
  void CopyFrom(Iterator first, Iterator last) {
    const std::vector<V> copied(first, last);
    CopyFrom(copied.data(), copied.size());
  }

  /* Elements from begin to before end, shared. */
  SArray<V> segment(std::size_t begin, std::size_t end) const {
    if (begin > end || end > size_) throw Error(ERPS_INVALID, "a segment that ends behind its SArray");
    SArray<V> part;
    part.data_ = std::shared_ptr<V>(data_, data() + begin);
    part.size_ = part.capacity_ = end - begin;
    return part;
  }

  void push_back(const V& value) {
    const V copied = value;
    if (size_ == capacity_) reserve(size_ < 8 ? 16 : 2 * size_);
    data()[size_++] = copied;
  }
  void pop_back() { --size_; }
  void append(const SArray<V>& other) {
    const std::size_t before = size_;
    const SArray<V> from = other;
    resize(before + from.size());
    std::copy(from.begin(), from.end(), begin() + before);
  }

  V* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  V* begin() { return data(); }
  V* end() { return data() + size_; }
  const V* begin() const { return data(); }
  const V* end() const { return data() + size_; }
  V& operator[](std::size_t index) { return data()[index]; }
  const V& operator[](std::size_t index) const { return data()[index]; }
  V& front() { return data()[0]; }
  const V& front() const { return data()[0]; }
  V& back() { return data()[size_ - 1]; }
  const V& back() const { return data()[size_ - 1]; }
  std::shared_ptr<V>& ptr() { return data_; }
  const std::shared_ptr<V>& ptr() const { return data_; }

 private:
  std::shared_ptr<V> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

/* The positions of the keys of a sorted array that are in a range. */
template <typename V>
Range FindRange(const SArray<V>& sorted, V lower, V upper) {
  const V* begin = sorted.begin();
  const V* end = sorted.end();
  return Range(std::lower_bound(begin, end, lower) - begin, std::lower_bound(begin, end, upper) - begin);
}

template <typename V>
std::ostream& operator<<(std::ostream& out, const SArray<V>& array) {
  out << "[" << array.size() << "]:";
  for (const V& value : array) out << " " << value;
  return out;
}

namespace internal {

/* The keys as the library knows them: shared if they are what they were, else a copy. */
inline SArray<std::uint64_t> Widen(const SArray<Key>& keys) {
  if constexpr (sizeof(Key) == sizeof(std::uint64_t)) return SArray<std::uint64_t>(keys);
  SArray<std::uint64_t> wide(keys.size());
  std::transform(keys.begin(), keys.end(), wide.begin(), [](Key key) { return Widen(key); });
  return wide;
}

/* The keys of a request, copied. */
inline SArray<Key> Narrow(const std::uint64_t* keys, std::size_t size) {
  SArray<Key> narrow(size);
  std::transform(keys, keys + size, narrow.begin(), [](std::uint64_t key) { return Narrow(key); });
  return narrow;
}

}  // namespace internal

}  // namespace ps
