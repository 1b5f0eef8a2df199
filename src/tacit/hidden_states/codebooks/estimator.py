"""Codes of vectors alone: fitted, with scikit-learn's conventions, and as embedding quantisers."""

from __future__ import annotations

import re
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import ArrayLike

from tacit._ground.checks import RandomSource, integer
from tacit.hidden_states.codebooks.certificates import CodeCertificate, code_type
from tacit.hidden_states.codebooks.codebook import Codebook
from tacit.hidden_states.codebooks.codec import Codec, load_codec
from tacit.hidden_states.codebooks.encoding import ONE_CODE, prepare_codes
from tacit.hidden_states.codebooks.methods import (
    BEAM,
    LEAST_CELL,
    CodebookFit,
    ProductFit,
    PromptCodes,
    ResidualFit,
    VectorFit,
)
from tacit.hidden_states.codebooks.product import ProductCodebook
from tacit.hidden_states.codebooks.release import CodeRows
from tacit.hidden_states.codebooks.residual import ResidualCodebook
from tacit.releases import Release


def fit_vectors(
    vectors: ArrayLike,
    how: VectorFit,
    *,
    rng: RandomSource = None,
    progress: bool | None = None,
) -> Codec:
    """Fit a codebook on public vectors: whole, in parts, or in stages that are summed.

    Args:
        vectors: (n, d), public, disjoint from what is released.
        how: parts or stages, and codewords of each.
        rng: source of the choices.
        progress: whether a bar is shown; None for when stderr is a terminal.

    Returns:
        A ``ResidualCodebook`` of two stages or more, a ``ProductCodebook`` of two parts or more, a
        ``Codebook`` otherwise.

    Raises:
        ValueError: vectors that are not finite, or fewer than codewords or a least cell.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(900, 6)).astype(np.float32)
        >>> fit_vectors(rows, VectorFit(size=8, stages=2), rng=0).sizes
        (8, 8)
    """
    if how.stages > 1:
        residual = ResidualFit(
            stages=how.stages, size=how.size, least_cell=how.least_cell, beam=how.beam
        )
        return ResidualCodebook.fit(vectors, residual, rng=rng, progress=progress)
    if how.parts > 1:
        product = ProductFit(parts=how.parts, size=how.size, least_cell=how.least_cell)
        return ProductCodebook.fit(vectors, product, rng=rng, progress=progress)
    whole = CodebookFit(size=how.size, least_cell=how.least_cell)
    return Codebook.fit(vectors, whole, rng=rng, progress=progress)


PRECISION = re.compile(r"([PR])Q(\d{1,6})(?:x(\d{1,2}))?")
LARGEST_BITS = 24


class VectorQuantizer:
    """Replace vectors by codes: ``fit`` on public ones, ``transform`` what is to be stored.

    An estimator in scikit-learn's sense, which need not be installed: parameters are set by name
    and looked at when it is fitted, so that it can be cloned, and put into a pipeline.

    Args:
        size: C, cells of a part at most.
        parts: m that a vector is cut into; 1 codes it as a whole.
        stages: m codewords that are summed, in the place of parts.
        least_cell: vectors that a centroid is the average of at least.
        beam: sums that a search of stages keeps.
        random_state: seed or generator of the fit; the operating system's when None.

    Attributes:
        codebook_: what ``fit_vectors`` returns, or the codebook it was made from.
        n_features_in_: d.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(900, 8)).astype(np.float32)
        >>> coder = VectorQuantizer(16, parts=2, random_state=0).fit(rows)
        >>> codes = coder.transform(rows[:3])
        >>> codes.dtype, codes.shape, coder.inverse_transform(codes).shape
        (dtype('uint8'), (3, 2), (3, 8))

    Source: product quantisation (Jégou, Douze and Schmid, 2011); residual quantisation (Barnes,
    Rizvi and Nasrabadi, 1996).
    """

    codebook_: Codec
    n_features_in_: int

    def __init__(
        self,
        size: int = 256,
        *,
        parts: int = 1,
        stages: int = 1,
        least_cell: int = LEAST_CELL,
        beam: int = BEAM,
        random_state: RandomSource = None,
    ) -> None:
        self.size = size
        self.parts = parts
        self.stages = stages
        self.least_cell = least_cell
        self.beam = beam
        self.random_state = random_state

    @classmethod
    def from_codebook(cls, codebook: Any) -> Self:
        """Return a fitted quantiser from a codebook, or from the path of one."""
        book = codebook if isinstance(codebook, Codec) else load_codec(codebook)
        # parameters as if it had been fitted with them, so that it can be cloned
        made = cls(max(book.sizes), least_cell=book.least_cell)
        if isinstance(book, ResidualCodebook):
            made.set_params(stages=len(book.sizes), beam=book.beam)
        else:
            made.set_params(parts=len(book.sizes))
        made.codebook_, made.n_features_in_ = book, book.width
        return made

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name.

        Raises:
            ValueError: no such parameter.
        """
        for name, value in params.items():
            if name not in PARAMETERS:
                raise ValueError(f"{name}: expected one of {', '.join(PARAMETERS)}")
            setattr(self, name, value)
        return self

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Fit on public vectors (n, d), disjoint from what is coded.

        Raises:
            ValueError: a parameter or vectors that ``fit_vectors`` refuses.
        """
        rows = _matrix(X)
        if len(rows) < max(1, integer("size", self.size)):
            raise ValueError(
                f"X: expected at least size = {self.size} rows, got n_samples = {len(rows)}"
            )
        asked = {name: getattr(self, name) for name in PARAMETERS if name != "random_state"}
        self.codebook_ = fit_vectors(
            rows, VectorFit(**asked), rng=self.random_state, progress=False
        )
        self.n_features_in_ = self.codebook_.width
        return self

    def transform(self, X: ArrayLike) -> npt.NDArray[Any]:
        """Return the code of every vector, (n, m) of the smallest unsigned type.

        Raises:
            ValueError: not fitted, or vectors of another width or that are not finite.
        """
        book = self._fitted()
        rows = _matrix(X)
        if rows.shape[1] != self.n_features_in_:
            # the words that scikit-learn's own estimators use
            raise ValueError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        return book.encode(rows).astype(code_type(book.sizes))

    def fit_transform(self, X: ArrayLike, y: Any = None) -> npt.NDArray[Any]:
        """Fit, and return the codes of the same vectors, which are public then."""
        return self.fit(X, y).transform(X)

    def inverse_transform(self, X: ArrayLike) -> npt.NDArray[np.float32]:
        """Return the vectors that stand for codes (n, m): post-processing."""
        return self._fitted().decode(np.asarray(X)).numpy()

    def certify(self, X: ArrayLike, *, weights: ArrayLike | None = None) -> CodeCertificate:
        """Bound what the code of one of N candidate vectors (N, d) tells about which it is."""
        codes = self.transform(X).astype(np.int64)
        return self._fitted().certify(codes, weights=weights)

    def encode(self, X: ArrayLike, promise: PromptCodes = ONE_CODE) -> Release[CodeRows]:
        """Return codes with their certificate, as ``prepare_codes(...).draw()`` does."""
        return prepare_codes(self._fitted(), X, promise).draw()

    def __repr__(self) -> str:
        held = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({held})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "codebook_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(),
            non_deterministic=self.random_state is None,
        )

    def _fitted(self) -> Codec:
        if not hasattr(self, "codebook_"):
            raise NotFittedError(
                f"codebook_: this {type(self).__name__} is not fitted yet; call fit first"
            )
        return self.codebook_


class NotFittedError(ValueError, AttributeError):
    """A quantiser was asked for codes before it was fitted."""


ASKED = ("size", "parts", "stages", "least_cell", "beam")
PARAMETERS = (*ASKED, "random_state")


def quantize_embeddings(
    embeddings: ArrayLike,
    precision: str = "PQ1x8",
    *,
    calibration_embeddings: ArrayLike | None = None,
    codebook: Codec | None = None,
    rng: RandomSource = None,
) -> npt.NDArray[Any]:
    """Return codes of embeddings, in the place of ``sentence_transformers``' function of this name.

    Args:
        embeddings: (n, d).
        precision: ``"PQ<m>x<b>"`` or ``"RQ<m>x<b>"`` as FAISS names product and residual
            quantisers: m parts or stages of at most 2^b cells, b = 8 when left out; at most
            ``m b ln 2`` nats an embedding.
        calibration_embeddings: public embeddings to fit on; never the ones that are coded.
        codebook: one fitted before, in their place.
        rng: source of the fit.

    Returns:
        (n, m), of uint8, uint16 or uint32.

    Raises:
        ValueError: a bad precision, or not exactly one of calibration embeddings and codebook.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(1500, 8)).astype(np.float32)
        >>> quantize_embeddings(rows[:2], "PQ4x4", calibration_embeddings=rows[2:], rng=0).shape
        (2, 4)

    Source: the shape of ``sentence_transformers.quantization.quantize_embeddings``.
    """
    if (calibration_embeddings is None) == (codebook is None):
        raise ValueError(
            "calibration_embeddings: expected public embeddings or a codebook, exactly one of them"
        )
    if codebook is not None:
        return VectorQuantizer.from_codebook(codebook).transform(embeddings)
    many, count, bits = _precision(precision)
    public = _matrix(calibration_embeddings)
    # no more cells than public embeddings
    coder = VectorQuantizer(min(2**bits, len(public)), random_state=rng)
    coder.set_params(**{many: count})
    return coder.fit(public).transform(embeddings)


def _precision(text: Any) -> tuple[str, int, int]:
    """Return whether a word is of parts or stages, how many, and the bits of each."""
    found = PRECISION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"precision: expected a word such as 'PQ8x8' or 'RQ8x8', got {text!r}")
    many = "stages" if found[1] == "R" else "parts"
    count = integer("precision", int(found[2]), minimum=1)
    return many, count, integer("precision", int(found[3] or 8), minimum=1, maximum=LARGEST_BITS)


def _matrix(values: Any) -> npt.NDArray[np.float32]:
    """Return numbers (n, d) as float32, in scikit-learn's words where they are not."""
    if hasattr(values, "toarray") and hasattr(values, "nnz"):
        raise TypeError("X: expected a dense array, got a sparse one; X.toarray() makes it dense")
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().float().numpy()
    try:
        found = np.asarray(values)
        if found.dtype.kind == "c":
            raise ValueError(
                "X: expected real numbers, got complex ones: Complex data not supported"
            )
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(found, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise type(error)(f"X: expected numbers of shape (n, d): {error}") from None
    if rows.ndim != 2:
        raise ValueError(
            f"X: expected shape (n, d), got {rows.shape}. Reshape your data either using "
            "array.reshape(-1, 1) or array.reshape(1, -1)"
        )
    if rows.shape[0] == 0 or rows.shape[1] == 0:
        kind = "sample(s)" if rows.shape[0] == 0 else f"feature(s) (shape={rows.shape})"
        raise ValueError(f"X: found array with 0 {kind} while a minimum of 1 is required.")
    if not np.isfinite(rows).all():
        raise ValueError("X: expected finite numbers, got NaN or inf")
    return rows
