//! Operator families, one per file. A cargo feature leaves the tables of its families out of a binary, and with them
//! their code: [`crate::features`].

#[allow(unsafe_code, reason = "a SIMD task")]
pub(crate) mod complex_angle;
pub(crate) mod complex_elementwise;
pub(crate) mod complex_functions;
pub(crate) mod complex_lanes;
pub(crate) mod complex_scans;
pub(crate) mod complex_sums;
pub(crate) mod dense;
pub(crate) mod index_items;
pub(crate) mod matrix_batch;
pub(crate) mod quantized_functions;
pub(crate) mod quantized_layout;
pub(crate) mod real;
pub(crate) mod row_arithmetic;
#[allow(unsafe_code, reason = "a SIMD task")]
pub(crate) mod tile_product;
pub(crate) mod volume;

macro_rules! families {
    ($(
        $(#[cfg(feature = $feature:literal)])?
        { $($name:ident),* $(,)? }
    )*) => {
        $($( pub mod $name; )*)*
        /// The tables of all families whose feature is on.
        pub(crate) static TABLES: &[&[&[crate::operator::Operator]]] = &[
            $( $(#[cfg(feature = $feature)])? &[$($name::OPERATORS),*], )*
        ];
        /// The tables of the families that a feature leaves out, by feature.
        #[cfg(test)]
        pub(crate) static OPTIONAL: &[(&str, &[&[crate::operator::Operator]])] = &[
            $( (concat!($($feature)?), &[$($name::OPERATORS),*]), )*
        ];
    };
}

families! {
    {
        unary_float, unary_number, activation, arithmetic, division, power, comparison, logical, bitwise, clamp,
        masked_choice, copy, scalar_prim, tensor_prim, layout,
        joining, sums, extremes, softmax, normalization, matrix, grouped_matrix, creation, indexing, scattering,
        advanced_indexing, padding, data_dependent, channels, gated_linear, distances, number_pairs, running_results,
        flat_positions, exponents, embedding_bag, index_reduce, cache_update, cached_attention, hadamard,
    }
    #[cfg(feature = "convolution")]
    { convolution, deformed_convolution }
    #[cfg(feature = "pooling")]
    { pooling, adaptive_pooling }
    #[cfg(feature = "image")]
    { resampling, antialiasing, grid_sampling, patches, suppression, region_sampling }
    #[cfg(feature = "sorting")]
    { sorting, order_statistics, searching, counting, unique }
    #[cfg(feature = "special_functions")]
    { special_functions, bessel_functions, zeta_functions, incomplete_gamma }
    #[cfg(feature = "training")]
    { batch_norm_training, pooling_backward, convolution_backward, norm_backward, embedding_backward }
    #[cfg(feature = "quantized")]
    {
        quantize, dequantize, quantization_parameters, quantized_embedding, quantized_arithmetic, quantized_attention,
        integer_arithmetic,
    }
    #[cfg(feature = "linear_algebra")]
    { lu, triangular, cholesky, householder, symmetric_eigen, singular_values, matrix_exponential }
    #[cfg(feature = "random")]
    { random, random_choice, random_counts }
    #[cfg(feature = "complex")]
    { complex_parts, complex_pairs }
    #[cfg(feature = "fourier")]
    { fourier_operators }
}
