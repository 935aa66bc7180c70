// The kernels of kernels.py and their adjoints, by hand: one thread, plain loops, built with -O3 -march=native.
// Arguments come in the order of the kernel; of an adjoint, the gradients of the active ones and the cotangent last.
#include <cmath>

typedef const float* in;
typedef float* out;
typedef const int* index;

extern "C" {

void saxpy(long n, in a, in x, in y, out z) {
    for (long i = 0; i < n; ++i) z[i] = a[0] * x[i] + y[i];
}

void saxpy_adjoint(long n, in a, in x, in y, out a_bar, out x_bar, out y_bar, in z_bar) {
    double sum = 0;
    for (long i = 0; i < n; ++i) {
        x_bar[i] += a[0] * z_bar[i];
        y_bar[i] += z_bar[i];
        sum += x[i] * z_bar[i];
    }
    a_bar[0] += float(sum);
}

void chain(long n, in x, out z) {
    for (long i = 0; i < n; ++i) {
        float u = sinf(x[i]) * expf(-x[i]);
        z[i] = sinf(u + 1.0f) * expf(-u * u);
    }
}

void chain_adjoint(long n, in x, out x_bar, in z_bar) {
    for (long i = 0; i < n; ++i) {
        float s = sinf(x[i]), e = expf(-x[i]), u = s * e, peak = expf(-u * u);
        float u_bar = z_bar[i] * peak * (cosf(u + 1.0f) - 2.0f * u * sinf(u + 1.0f));
        x_bar[i] += u_bar * e * (cosf(x[i]) - s);
    }
}

void bodies(long n, in x, out z) {
    for (long i = 0; i < n; ++i) {
        float fx = 0, fy = 0, fz = 0;
        for (long j = 0; j < n; ++j) {
            float dx = x[3 * j] - x[3 * i], dy = x[3 * j + 1] - x[3 * i + 1], dz = x[3 * j + 2] - x[3 * i + 2];
            float r = dx * dx + dy * dy + dz * dz + 0.01f, w = 1.0f / (r * sqrtf(r));
            fx += dx * w, fy += dy * w, fz += dz * w;
        }
        z[3 * i] = fx, z[3 * i + 1] = fy, z[3 * i + 2] = fz;
    }
}

void bodies_adjoint(long n, in x, out x_bar, in z_bar) {
    for (long i = 0; i < n; ++i) {
        float own[3] = {0, 0, 0};
        const float* g = z_bar + 3 * i;
        for (long j = 0; j < n; ++j) {
            float d[3], r = 0.01f, along = 0;
            for (int c = 0; c < 3; ++c) {
                d[c] = x[3 * j + c] - x[3 * i + c];
                r += d[c] * d[c];
                along += g[c] * d[c];
            }
            float w = 1.0f / (r * sqrtf(r)), slope = -3.0f * w / r * along;
            for (int c = 0; c < 3; ++c) {
                float d_bar = w * g[c] + slope * d[c];
                x_bar[3 * j + c] += d_bar;
                own[c] -= d_bar;
            }
        }
        for (int c = 0; c < 3; ++c) x_bar[3 * i + c] += own[c];
    }
}

void stencil(long n, long m, in x, out z) {
    for (long i = 1; i < n - 1; ++i)
        for (long k = i * m + 1; k < i * m + m - 1; ++k)
            z[k] = x[k] + 0.1f * (x[k - m] + x[k + m] + x[k - 1] + x[k + 1] - 4.0f * x[k]);
}

void stencil_adjoint(long n, long m, in, out x_bar, in z_bar) {
    for (long i = 1; i < n - 1; ++i)
        for (long k = i * m + 1; k < i * m + m - 1; ++k) {
            float g = 0.1f * z_bar[k];
            x_bar[k] += 6.0f * g;
            x_bar[k - m] += g, x_bar[k + m] += g, x_bar[k - 1] += g, x_bar[k + 1] += g;
        }
}

void springs(long n, in x, index a, index b, out z) {
    for (long s = 0; s < n; ++s) {
        const float *p = x + 3 * a[s], *q = x + 3 * b[s];
        float d[3] = {q[0] - p[0], q[1] - p[1], q[2] - p[2]};
        float length = sqrtf(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]) + 1.0e-6f, k = (length - 1.0f) / length;
        for (int c = 0; c < 3; ++c) z[3 * a[s] + c] += k * d[c], z[3 * b[s] + c] -= k * d[c];
    }
}

void springs_adjoint(long n, in x, index a, index b, out x_bar, in z_bar) {
    for (long s = 0; s < n; ++s) {
        float d[3], g[3], norm = 0, along = 0;
        for (int c = 0; c < 3; ++c) {
            d[c] = x[3 * b[s] + c] - x[3 * a[s] + c];
            g[c] = z_bar[3 * a[s] + c] - z_bar[3 * b[s] + c];
            norm += d[c] * d[c];
            along += g[c] * d[c];
        }
        norm = sqrtf(norm);
        float length = norm + 1.0e-6f, k = (length - 1.0f) / length, slope = along / (length * length * norm);
        for (int c = 0; c < 3; ++c) {
            float d_bar = k * g[c] + slope * d[c];
            x_bar[3 * b[s] + c] += d_bar, x_bar[3 * a[s] + c] -= d_bar;
        }
    }
}

void logistic(long n, in x, in r, int steps, out z) {
    for (long i = 0; i < n; ++i) {
        float v = x[i];
        for (int k = 0; k < steps; ++k) v = r[i] * v * (1.0f - v);
        z[i] = v;
    }
}

void logistic_adjoint(long n, in x, in r, int steps, out x_bar, out r_bar, in z_bar) {
    float before[64];
    for (long i = 0; i < n; ++i) {
        float v = x[i], g = z_bar[i], sum = 0;
        for (int k = 0; k < steps; ++k) before[k] = v, v = r[i] * v * (1.0f - v);
        for (int k = steps - 1; k >= 0; --k) {
            sum += g * before[k] * (1.0f - before[k]);
            g *= r[i] * (1.0f - 2.0f * before[k]);
        }
        x_bar[i] += g, r_bar[i] += sum;
    }
}

void squares(long n, in x, out z) {
    double sum = 0;
    for (long i = 0; i < n; ++i) sum += x[i] * x[i];
    z[0] += float(sum);
}

void squares_adjoint(long n, in x, out x_bar, in z_bar) {
    for (long i = 0; i < n; ++i) x_bar[i] += 2.0f * z_bar[0] * x[i];
}

}
