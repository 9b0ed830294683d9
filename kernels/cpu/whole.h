// Whole products in one call: describe, split, multiply and round one matrix of a stack after the other.
#pragma once

#include "describe.h"
#include "products.h"
#include "recombine.h"
#include "split.h"

namespace cpu {

// The rows of an operand; steps in elements, `of_batch` is 0 where there is one matrix for all.
struct Rows {
  const void* x;
  int64_t of_batch, of_rows, of_k;
};

// How a row's description becomes the bits of its image (ozaki/bounds/description.py): as many more than `base` as
// there are limits, in ascending order, that its statistic stays below or meets.
struct Scaling {
  int64_t width, empty;  // see `Describe`
  int64_t by_squares;    // whether the statistic is the sum of squares, else the largest magnitude
  int64_t base, count;
  const int64_t* limits;
};

struct Whole {
  int64_t batch;            // matrices
  int64_t single, m, k, n;  // whether operands and result are float32, else float64
  Rows left, right;
  void* out;
  int64_t out_of_batch, out_of_rows;  // steps in elements
  int64_t tile_rows, tile_columns;    // whole panels
  int64_t narrow;                     // see `Split`
  int64_t farthest;                   // largest sum of two exponents, of a row and of a column, that is rounded
  const Scaling* scaling;
  const Residue *left_residues, *right_residues;
  const Modulus* moduli;
  const Recombination* recombination;
};

// Memory, cut up into pieces that begin with lines of the cache.
class Pieces {
 public:
  explicit Pieces(int8_t* begin) : begin_(begin), at_(begin) {}

  template <typename T> T* take(int64_t count) {
    T* piece = (T*)at_;
    at_ += (count * (int64_t)sizeof(T) + 63) / 64 * 64;
    return piece;
  }

  int64_t nbytes() const { return at_ - begin_; }

 private:
  int8_t *begin_, *at_;
};

// What one matrix of an operand becomes.
struct Side {
  Rows rows;
  int64_t count;           // of rows
  int64_t held;            // of them, whose panels are held at a time
  int64_t width;           // of a panel
  int64_t *fields;         // of the description, [6][count]
  int64_t *exponents;      // mu
  double* factors;         // 2**-mu, with room for sixteen more
  int8_t* panels;
  int64_t plane;           // bytes from one modulus to the next
  int64_t nonfinite, farthest;  // rows with NaN or Inf; the largest abs(mu)
  int64_t batch;           // which matrix that is; -1 before the first one

  void lay_out(Pieces& pieces, const Rows& of, int64_t rows_, int64_t width_, int64_t depth, int64_t moduli,
               int64_t held_) {
    rows = of, count = rows_, width = width_, held = held_, batch = -1;
    fields = pieces.take<int64_t>(6 * count), exponents = pieces.take<int64_t>(count);
    factors = pieces.take<double>(count + 16);
    plane = (held + width - 1) / width * width * depth;
    panels = pieces.take<int8_t>(plane * moduli);
  }
};

constexpr int64_t STRIP = 1 << 21;  // bytes of panels that are split and read again before the cache has lost them

struct Layout {
  Side left, right;
  int8_t* residues;
  int64_t depth, nbytes;
  int64_t tile_rows, tile_columns;

  Layout(const Whole& of, int8_t* scratch) {
    Pieces pieces(scratch);
    const int64_t moduli = of.recombination->count;
    depth = (of.k + 15) / 16 * 16, tile_rows = of.tile_rows, tile_columns = of.tile_columns;
    // Panels that are read by one row or column of tiles alone are split tile by tile, if they are so many; but not
    // those of one matrix for all.
    const int64_t row_bytes = moduli * depth;
    int64_t held_rows = of.m, held_columns = of.n;
    const bool left_once = of.batch == 1 || of.left.of_batch, right_once = of.batch == 1 || of.right.of_batch;
    if (left_once && of.n <= tile_columns && of.m * row_bytes > STRIP && of.m >= of.n) {
      tile_rows = held_rows = least(tile_rows, largest(STRIP / row_bytes / 16, 1) * 16);
    } else if (right_once && of.m <= tile_rows && of.n * row_bytes > STRIP) {
      tile_columns = held_columns = least(tile_columns, largest(STRIP / row_bytes / RIGHT_ROWS, 1) * RIGHT_ROWS);
    }
    left.lay_out(pieces, of.left, of.m, LEFT_ROWS, depth, moduli, held_rows);
    right.lay_out(pieces, of.right, of.n, RIGHT_ROWS, depth, moduli, held_columns);
    residues = pieces.take<int8_t>(moduli * tile_plane(tile_rows, tile_columns) + 64);
    nbytes = pieces.nbytes();
  }

  static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
  static int64_t largest(int64_t x, int64_t y) { return x < y ? y : x; }
};

// Write the exponents and the factors of a matrix's rows.
static void scale_rows(const Scaling& scaling, Side& side) {
  const int64_t *top = side.fields, *peak = top + side.count, *squares = top + 3 * side.count;
  const int64_t *nonfinite = top + 5 * side.count, *statistic = scaling.by_squares ? squares : peak;
  side.farthest = side.nonfinite = 0;
  for (int64_t i = 0; i < side.count; i += 8) {
    const int64_t count = side.count - i;
    const Longs of_row = some_integers(statistic + i, count), filled = some_integers(peak + i, count) != 0;
    Longs bits = longs(scaling.base + scaling.count);
    for (int64_t g = 0; g < scaling.count; g++) bits += scaling.limits[g] < of_row;  // -1 for each one exceeded
    const Longs mu = (bits - some_integers(top + i, count)) & filled;
    store_some(side.exponents + i, mu, count);
    for (int j = 0; j < 8 && j < count; j++) {
      const int64_t distance = mu[j] < 0 ? -mu[j] : mu[j];
      side.farthest = distance > side.farthest ? distance : side.farthest;
      side.nonfinite += nonfinite[i + j];
    }
    store_some(side.factors + i, powers(-mu), count);
  }
}

// Describe a matrix and find the exponents of its rows.
template <typename Element> static void describe_side(const Whole& of, Side& side, int64_t batch) {
  const Element* x = (const Element*)side.rows.x + batch * side.rows.of_batch;
  int64_t *f = side.fields, n = side.count;
  const Describe d = {x, sizeof(Element) == 4, 1, n, of.k, 0, side.rows.of_rows, side.rows.of_k, 0,
                      of.scaling->width, of.scaling->empty, f, f + n, f + 2 * n, f + 3 * n, f + 4 * n, f + 5 * n};
  describe_blocks<Element>(d, 0, (n + ACROSS - 1) / ACROSS);
  scale_rows(*of.scaling, side);
}

// Where the panels of an operand would begin whose panels from `row` on are held.
INLINE int8_t* panels_from(const Side& side, int64_t row, int64_t depth) { return side.panels - row * depth; }

// Split rows [begin, end), whose panels are then those that are held; they begin with two whole panels.
template <typename Element, int WIDTH>
static void split_side(const Whole& of, Side& side, int64_t batch, int64_t begin, int64_t end, int64_t depth,
                       const Residue* residues) {
  const Element* x = (const Element*)side.rows.x + batch * side.rows.of_batch;
  const Split s = {x, sizeof(Element) == 4, 1, side.count, of.k, 0, side.rows.of_rows, side.rows.of_k, side.exponents,
                   residues, of.recombination->count, panels_from(side, begin, depth), side.plane, 0, depth, of.narrow};
  split_panels<Residue, Element, WIDTH>(s, begin / WIDTH, (end + WIDTH - 1) / WIDTH);
}

constexpr int64_t FETCHED = 1 << 15;  // most bytes of a matrix that are fetched while the one before it is computed

// Let the cache fetch a matrix whose rows, or whose columns, are next to one another in memory. Inlined, since GCC
// drops calls of a function that does nothing else.
template <typename Element> INLINE void fetch_side(const Whole& of, const Side& side, int64_t batch) {
  constexpr int64_t LINE = 64 / sizeof(Element);
  const int64_t elements = side.count * of.k;
  const bool packed = (side.rows.of_k == 1 && side.rows.of_rows == of.k) ||
                      (side.rows.of_rows == 1 && side.rows.of_k == side.count);
  if (!packed || side.rows.of_batch == 0 || elements * (int64_t)sizeof(Element) > FETCHED) return;
  const Element* x = (const Element*)side.rows.x + batch * side.rows.of_batch;
  for (int64_t i = 0; i < elements; i += LINE) __builtin_prefetch(x + i);
}

template <typename Element>
static bool multiply_whole(const Whole& of, int64_t begin, int64_t end, int8_t* scratch, int64_t& nonfinite) {
  Layout at(of, scratch);
  Side &left = at.left, &right = at.right;
  const int64_t step = at.tile_columns, plane = tile_plane(at.tile_rows, step), depth = at.depth;
  const bool holds_left = left.held == of.m, holds_right = right.held == of.n;
  for (int64_t batch = begin; batch < end; batch++) {
    const bool new_left = left.batch < 0 || left.rows.of_batch != 0;
    const bool new_right = right.batch < 0 || right.rows.of_batch != 0;
    if (new_left) describe_side<Element>(of, left, batch);
    if (new_right) describe_side<Element>(of, right, batch);
    if (left.farthest + right.farthest > of.farthest) return false;
    nonfinite += left.nonfinite + right.nonfinite;
    if (holds_left && new_left) split_side<Element, LEFT_ROWS>(of, left, batch, 0, of.m, depth, of.left_residues);
    if (holds_right && new_right) split_side<Element, RIGHT_ROWS>(of, right, batch, 0, of.n, depth, of.right_residues);
    left.batch = right.batch = batch;
    if (batch + 1 < end) fetch_side<Element>(of, left, batch + 1), fetch_side<Element>(of, right, batch + 1);
    Element* out = (Element*)of.out + batch * of.out_of_batch;
    for (int64_t row = 0; row < of.m; row += at.tile_rows) {
      const int64_t row_end = Layout::least(row + at.tile_rows, of.m);
      if (!holds_left) split_side<Element, LEFT_ROWS>(of, left, batch, row, row_end, depth, of.left_residues);
      for (int64_t column = 0; column < of.n; column += step) {
        const int64_t column_end = Layout::least(column + step, of.n);
        if (!holds_right) {
          split_side<Element, RIGHT_ROWS>(of, right, batch, column, column_end, depth, of.right_residues);
        }
        const Operands operands = {panels_from(left, holds_left ? 0 : row, depth),
                                   panels_from(right, holds_right ? 0 : column, depth),
                                   left.plane, right.plane, 0, 0, depth, depth, (of.k + 3) / 4,
                                   of.moduli, of.recombination->count};
        multiply_tile(operands, 0, row, row_end, column, column_end, at.residues, step, plane);
        round_tile(at.residues, step, plane, *of.recombination, row_end - row, column_end - column, left.factors + row,
                   right.factors + column, out + row * of.out_of_rows + column, of.out_of_rows);
      }
    }
  }
  return true;
}

}  // namespace cpu
